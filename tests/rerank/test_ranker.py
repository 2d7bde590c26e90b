"""The logistic ranker: worked probabilities, bounded inhibition, and priors from files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.errors import ConfigurationError
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.ranker import Ranker


def prior(path, **weights):
    """A file with these weights."""
    sources = {"similarity": 6, "name": 2, "information": 1}
    data = {"weights": weights, "sources": sources, "provenance": {"note": "test"}}
    path.write_text(json.dumps(data))
    return path


def features(**values):
    """A matrix of one row."""
    return np.array([[values.get(name, 0.0) for name in FEATURES]])


def test_probability_is_the_sigmoid_of_the_weighted_sum(tmp_path):
    """-4 + 2.5 · .8 + 3 · .6 = -.2, and 1/(1 + e^.2) = .4502."""
    ranker = Ranker.load(prior(tmp_path / "prior.json", bias=-4, similarity=2.5, mention=3))
    matrix = features(bias=1, similarity=0.8, mention=0.6, far=1)
    assert ranker.log_odds(matrix) == pytest.approx([-0.2])
    assert ranker.probabilities(matrix) == pytest.approx([0.4502], abs=1e-4)
    assert ranker.provenance == {"note": "test"}


def test_the_shipped_prior_tells_where_it_comes_from():
    """It names its features, values evidence for a document, and carries its provenance."""
    ranker = Ranker.load()
    weights = dict(zip(FEATURES, ranker.weights, strict=True))
    assert (
        min(weights["similarity"], weights["information"], weights["mention"], weights["name"]) > 0
    )
    assert weights["bias"] < 0
    assert ranker.provenance


def test_a_prior_with_unknown_features_is_refused(tmp_path):
    """The names are listed, with what to do."""
    path = prior(tmp_path / "prior.json", bias=1, charm=2, luck=3)
    with pytest.raises(ConfigurationError, match=r"\['charm', 'luck'\]: fit it with this release"):
        Ranker.load(path)


def test_features_that_a_prior_leaves_out_count_nothing(tmp_path):
    """An older prior stays usable when a release adds features."""
    ranker = Ranker.load(prior(tmp_path / "prior.json", bias=1))
    assert ranker.log_odds(features(bias=1, hint=1, link=1)) == pytest.approx([1.0])


def test_a_prior_of_an_older_release_is_refused(tmp_path):
    """Without the weights of sources its pointers could not be weighed."""
    path = tmp_path / "prior.json"
    path.write_text(json.dumps({"weights": {"bias": 1}}))
    with pytest.raises(ConfigurationError, match="fit it with this release"):
        Ranker.load(path)


@given(st.floats(0, 1), st.floats(0, 1))
def test_inhibition_costs_at_most_its_bound(inhibition, similarity):
    """With the shipped prior, advice against a node lowers its log-odds by at most 1.5."""
    ranker = Ranker.load(inhibition=1.5)
    free = ranker.log_odds(features(bias=1, similarity=similarity))[0]
    advised = ranker.log_odds(features(bias=1, similarity=similarity, inhibition=inhibition))[0]
    assert free - 1.5 - 1e-9 <= advised <= free + 1e-9
    assert free - advised == pytest.approx(1.5 * inhibition)


def test_nothing_to_rank():
    """An empty matrix gives no probabilities."""
    assert Ranker.load().probabilities(np.zeros((0, len(FEATURES)))).shape == (0,)
