"""The logistic ranker: worked probabilities, bounded inhibition, and priors from files."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_lab.scoring import measure_calibration
from crabpath_retrievers.errors import ConfigurationError
from crabpath_retrievers.rerank import FEATURES, Ranker, draw_explored

SOURCES = {"similarity": 6, "name": 2, "information": 1}


@pytest.fixture
def load(tmp_path):
    """Loads a ranker whose prior has these weights."""

    def _load(weights, sources=SOURCES):
        data = {"weights": weights, "provenance": {"note": "test"}}
        path = tmp_path / "prior.json"
        path.write_text(json.dumps(data | ({"sources": sources} if sources else {})))
        return Ranker.load(path)

    return _load


def make_row(**values):
    return np.array([[values.get(name, 0.0) for name in FEATURES]])


def test_probability_is_the_sigmoid_of_the_weighted_sum(load):
    """-4 + 2.5 · .8 + 3 · .6 = -.2, and 1/(1 + e^.2) = .4502; what has no weight counts nothing."""
    ranker = load({"bias": -4, "similarity": 2.5, "mention": 3})
    matrix = make_row(bias=1, similarity=0.8, mention=0.6, far=1)
    assert ranker.log_odds(matrix) == pytest.approx([-0.2])
    assert ranker.probabilities(matrix) == pytest.approx([0.4502], abs=1e-4)
    assert ranker.probabilities(matrix[:0]).shape == (0,)
    assert ranker.provenance == {"note": "test"}


def test_past_turns_are_trials_and_the_model_counts_as_one(load):
    """From .2, one use gives 1.2 : .8, one pass .2 : 1.8, both 1.2 : 1.8; without any it stays.

    With one of two trials the model, and so what a document adds, counts half.
    """
    weights = {"bias": math.log(0.25), "coverage": 1.0}
    weights |= dict.fromkeys(("episode", "again", "missed", "passed"), 20.0)
    ranker = load(weights)
    trials = ({}, {"episode": 0.05}, {"again": 0.05}, {"missed": 0.05}, {"again": 1, "passed": 1})
    matrix = np.vstack([make_row(bias=1, **values) for values in trials])
    expected = [0.2, 0.6, 0.6, 0.1, 20.2 / 41]
    assert ranker.probabilities(matrix) == pytest.approx(expected)
    matrix[:2, FEATURES.index("coverage")] = 1.0
    shares = ranker.log_odds(matrix)[:2] - [math.log(0.25), math.log(1.5)]
    assert shares == pytest.approx([1.0, 0.5])


def test_uses_count_for_the_most_likely_document_too(load):
    """Its complement is too small to be told from 0 by subtraction."""
    ranker = load({"bias": 45.0, "again": 20.0})
    odds = ranker.log_odds(np.vstack([make_row(bias=1), make_row(bias=1, again=1)]))
    assert odds == pytest.approx([45.0, 45.0 + math.log(21)])


def test_the_shipped_prior_tells_where_it_comes_from():
    ranker = Ranker.load()
    weights = dict(zip(FEATURES, ranker.weights, strict=True))
    assert min(weights[name] for name in ("similarity", "information", "mention", "name")) > 0
    assert weights["bias"] < 0
    assert ranker.provenance


@pytest.mark.parametrize(
    ("weights", "sources", "message"),
    [
        ({"bias": 1, "charm": 2, "luck": 3}, SOURCES, r"\['charm', 'luck'\]: fit it with this"),
        ({"bias": 1}, None, "fit it with this release"),
    ],
    ids=["unknown features", "of an older release"],
)
def test_unusable_priors_are_refused(load, weights, sources, message):
    with pytest.raises(ConfigurationError, match=message):
        load(weights, sources)


@settings(max_examples=20)
@given(st.floats(0, 1), st.floats(0, 1))
def test_inhibition_costs_at_most_its_bound(inhibition, similarity):
    ranker = Ranker.load(inhibition=1.5)
    free = ranker.log_odds(make_row(bias=1, similarity=similarity))[0]
    advised = ranker.log_odds(make_row(bias=1, similarity=similarity, inhibition=inhibition))[0]
    assert free - advised == pytest.approx(1.5 * inhibition)


def test_calibration_error_is_the_mean_gap_of_ten_bins():
    """Two at .95, one right: .45 apart; three at .05, none right: .05; a 1.0 is in the last bin."""
    told = [(0.95, True), (0.95, False), (0.05, False), (0.05, False), (0.05, False)]
    found = measure_calibration(told)
    assert found == {"ece": pytest.approx(0.21), "bins": [[3, 0.05, 0.0], [2, 0.95, 0.5]]}
    assert measure_calibration([(1.0, True)])["ece"] == 0.0
    assert measure_calibration([]) == {"ece": 0.0, "bins": []}


def test_documents_are_drawn_as_often_as_their_propensities_say():
    scores = np.array([0.0, -0.05, -0.1, -0.15, -3.0])
    rng, drawn, told = np.random.default_rng(0), np.zeros(5), np.zeros(5)
    for _ in range(4000):
        indices, propensities = draw_explored(scores, 2, rng)
        assert len(set(indices)) == 2
        drawn[indices] += 1 / 4000
        told[indices] = propensities
    assert told.sum() == pytest.approx(2)
    assert drawn == pytest.approx(told, abs=0.03)
    assert told[0] > told[3] > told[4] > 0
    assert draw_explored(scores[:1], 2, rng) == ([0], [1.0])
