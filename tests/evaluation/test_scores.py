"""Scores per query and paired comparisons."""

import pytest

from crabpath_retrievers.evaluation.scores import compared, scores


def test_recall_and_full_evidence_by_hand():
    """q1 finds 1 of 2 among the first two, q2 finds its only one, q3 has no answer."""
    qrels = {"q1": frozenset("ab"), "q2": frozenset("c"), "q3": frozenset("d")}
    run = {"q1": ["a", "x", "b"], "q2": ["y", "c"]}
    found = scores(qrels, run, 2)
    assert found == {"recall": [0.5, 1.0, 0.0], "full": [0.0, 1.0, 0.0]}


def test_a_paired_difference_has_an_interval_and_a_p():
    """Better on 30 of 40 queries and never worse: the interval excludes 0."""
    result = compared([1.0] * 40, [0.0] * 30 + [1.0] * 10)
    assert result["difference"] == 0.75
    assert result["ci95"][0] > 0.5
    assert result["p"] < 0.01


def test_equal_runs_have_no_interval():
    """Without any difference there is nothing to estimate."""
    assert compared([1.0, 0.0], [1.0, 0.0]) == {"difference": 0.0, "ci95": None, "p": None}
    assert compared([1.0, 1.0], [0.5, 0.5])["difference"] == pytest.approx(0.5)
