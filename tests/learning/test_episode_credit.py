"""What a turn says when its question comes again, and how far one user may speak against others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.episode_credit import (
    assign_episode_credit,
    calibrate_relevance,
    limit_user_share,
)

NOTHING_SHOWN = frozenset("ab")


@pytest.fixture(scope="session")
def asked(returned):
    """A turn whose documents are likely and unlikely to have mattered."""
    return returned(a=0.9, b=0.2)


@pytest.mark.parametrize(
    ("credit", "options", "expected"),
    [
        # Used documents come again, others make room, in proportion to the weight.
        (Credit(1.0, 0.5, {"a": 1.0, "b": 0.0}), {}, {"a": 0.5, "b": -0.5}),
        # An answer that does not show a document says nothing against it.
        (Credit(1.0, 1.0, {"a": 1.0, "b": 0.0}, NOTHING_SHOWN), {}, {"a": 1.0}),
        # A bare success speaks as far as the ranker believed; a bare failure against what was
        # unlikely, half as much: it may be none.
        (Credit(1.0), {}, {"a": 0.9, "b": 0.2}),
        (Credit(-1.0), {}, {"a": -0.05, "b": -0.4}),
        # After a bare success nothing is held against its documents; what it did without was
        # not needed.
        (
            Credit(1.0),
            {"before": {"a": -0.5, "b": 0.3, "c": 0.7, "d": -0.2}},
            {"a": 0.9 + 0.5, "b": 0.2, "c": -0.7},
        ),
        # A bare failure lacked what successes had, each as far as it was thought to be needed.
        (
            Credit(-1.0),
            {"before": {"a": 0.4, "c": 0.9, "d": 0.3, "e": -0.5}},
            {"a": -0.05, "b": -0.4, "c": 0.375, "d": 0.125},
        ),
        # A failure counts as far as its documents answer for it, and may speak for one.
        (Credit(-1.0, 1.0, {"a": -1.0, "b": 0.0}), {}, {"a": -1.0, "b": -1.0}),
        (
            Credit(-0.5, 0.5, {"a": -0.5, "b": 0.0}),
            {"followed": {"a": 0.4}},
            {"a": 0.2, "b": -0.5},
        ),
        (Credit(0.0, 1.0, {"a": 0.0}), {}, {}),
    ],
)
def test_what_a_turn_says(asked, credit, options, expected):
    assert assign_episode_credit(asked, credit, **options) == pytest.approx(expected)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(0.01, 5))
def test_what_a_turn_says_stays_in_its_range(asked, outcome, weight, credit, lacked):
    """A bare success speaks for its documents, and less for what it lacked."""
    for documents in ({}, {"a": credit}):
        found = assign_episode_credit(asked, Credit(outcome, weight, documents))
        assert all(value and -1 <= value <= 1 for value in found.values())
    known = {"a": credit, "c": lacked}
    found = assign_episode_credit(asked, Credit(abs(outcome), weight), before=known)
    assert found.get("a", 0.0) >= 0
    assert 0 <= lacked + found.get("c", 0.0) <= lacked


@pytest.mark.parametrize(
    ("ranked", "expected"),
    [
        ({"a": 0.9, "b": 0.2}, {"a": 0.9, "b": 0.2}),  # half of them matter anyway
        # Odds of 1 : 999 and 1 : 9999 become p and q with p + q = 1, so p = 1 / (1 + √.1).
        (
            {"a": 0.001, "b": 0.0001},
            {
                "a": 1 / (1 + (999 / 9999) ** 0.5),
                "b": 1 - 1 / (1 + (999 / 9999) ** 0.5),
            },
        ),
        ({}, {}),
    ],
)
def test_probabilities_are_moved_by_one_number_of_log_odds(returned, ranked, expected):
    assert calibrate_relevance(returned(**ranked)) == pytest.approx(expected)


ANN = {"ann": {"right": 1.0, "other": -1.0}}


@pytest.mark.parametrize(
    ("said", "voices", "share", "expected"),
    [
        ({"wrong": 1.0, "right": -1.0}, {}, 0.5, 1.0),  # nobody has spoken
        ({"wrong": 1.0}, {"eve": {"right": 3.0}}, 0.5, 1.0),  # she herself has
        ({"right": 1.0, "other": -1.0}, ANN, 0.5, 1.0),  # she says the same
        ({"wrong": 1.0, "right": -1.0}, ANN, 0.5, 0.5),  # against it, half as much
        ({"wrong": 1.0}, ANN, 0.5, 0.5),  # beside it
        ({"wrong": 1.0, "right": -1.0}, {**ANN, "eve": {"wrong": 0.5, "right": -0.5}}, 0.5, 0.0),
        ({"wrong": 1.0, "right": -1.0}, {**ANN, "bob": {"right": 1.0}}, 0.5, 1.0),  # half of two
        ({"wrong": 1.0}, ANN, 0.0, 0.0),  # who may not contradict others still agrees with them
        ({"right": 1.0}, ANN, 0.0, 1.0),
    ],
)
def test_how_much_of_one_user_counts(said, voices, share, expected):
    assert limit_user_share(said, "eve", voices, share) == pytest.approx(expected)
