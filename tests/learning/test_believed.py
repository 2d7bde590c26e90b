"""How far documents are believed to matter when nobody said what was used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.learning.rules.episode_credit import calibrate_relevance


def test_calibrated_probabilities_stay(returned):
    """Where half of the documents is expected to matter anyway."""
    assert calibrate_relevance(returned(a=0.9, b=0.2)) == pytest.approx({"a": 0.9, "b": 0.2})


def test_low_probabilities_are_moved_by_one_number_of_log_odds(returned):
    """By hand: odds of 1 : 999 and 1 : 9999 become p and q with p + q = 1, so p = 1 / (1 + √.1)."""
    found = calibrate_relevance(returned(a=0.001, b=0.0001))
    assert found["a"] + found["b"] == pytest.approx(1.0)
    assert found["a"] == pytest.approx(1 / (1 + (999 / 9999) ** 0.5))


def test_a_turn_without_documents_believes_in_none(returned):
    """It returned nothing."""
    assert calibrate_relevance(returned()) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_at_least_half_is_expected_to_matter_in_the_same_order(returned, given_):
    """Also where probabilities are 0, or all the same."""
    turn = returned(**{f"n{place}": p for place, p in enumerate(given_)})
    found = list(calibrate_relevance(turn).values())
    assert all(0 <= p <= 1 for p in found)
    assert sum(found) >= len(given_) / 2 - 1e-6
    pairs = [(p, q) for place, p in enumerate(given_) for q in given_[place:]]
    ranks = [(p, q) for place, p in enumerate(found) for q in found[place:]]
    for (p, q), (first, second) in zip(pairs, ranks, strict=True):
        assert (p <= q) <= (first <= second + 1e-12)
