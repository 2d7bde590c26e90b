"""Precision, recall and F1 of chosen documents, by hand."""

import numpy as np
import pytest

from benchmarks.attribution.agreement import measure_agreement


def means(gold, support):
    rows = [np.array(row, dtype=bool) for row in gold]
    found = measure_agreement(rows, [np.array(row) for row in support])
    return {name: (part["mean"], part["n"]) for name, part in found.items() if "mean" in str(part)}


def test_one_question_by_hand():
    """Two of three chosen are gold, two of three gold chosen; gold gets 1.5 of 1.75."""
    found = means([[1, 1, 1, 0, 0]], [[1.0, 0.5, 0.0, 0.25, 0.0]])
    assert found["precision"] == (pytest.approx(2 / 3, abs=1e-4), 1)
    assert found["recall"] == (pytest.approx(2 / 3, abs=1e-4), 1)
    assert found["f1"] == (pytest.approx(2 / 3, abs=1e-4), 1)
    assert found["credited"] == (pytest.approx(1.5 / 1.75, abs=1e-4), 1)


def test_choosing_nothing_counts_in_recall_and_f1_only():
    """One question right, one left open, one with neither gold nor choice."""
    found = means([[1, 0], [1, 0], [0, 0]], [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert found["precision"] == (1.0, 1)
    assert found["recall"] == (0.5, 2)
    assert found["f1"] == (0.5, 2)
    assert found["credited"] == (1.0, 1)


def test_choosing_where_no_gold_was_returned():
    found = means([[0, 0]], [[1.0, 0.0]])
    assert (found["precision"], found["f1"]) == ((0.0, 1), (0.0, 1))
    assert found["recall"] == (None, 0)


def test_the_interval_holds_the_mean():
    rng = np.random.default_rng(0)
    gold = rng.random((40, 5)) < 0.4
    found = measure_agreement(list(gold), list(rng.random((40, 5)) * (rng.random((40, 5)) < 0.5)))
    low, high = found["precision"]["ci95"]
    assert low < found["precision"]["mean"] < high
    assert (found["questions"], found["precision"]["n"]) == (40, found["attributed"])


def test_no_questions():
    """A data set may have no yes/no answers."""
    assert measure_agreement([], [])["f1"] == {"mean": None, "ci95": None, "n": 0}
