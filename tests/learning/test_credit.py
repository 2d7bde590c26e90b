"""Credit: what a feedback says of each returned document, and of no other."""

import math

import pytest

from crabpath_retrievers.core.feedback import Credit, Feedback
from crabpath_retrievers.core.turn import ReturnedDocument, Turn
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.credit import assign_credit, share_by_recency

TURN = Turn(
    id="t",
    namespace="default",
    clock=1,
    created=0.0,
    query="?",
    seeds=(),
    steps=(),
    visited=("a", "b", "c", "walked"),
    returned=tuple(ReturnedDocument(node, 0.5, "seed", (), {}) for node in "abc"),
    guardrails=(),
    novelty={},
)
NO_OUTCOMES = [math.nan, math.inf, -math.inf, 1.01, -1.01, "1", None, True]


@pytest.mark.parametrize("value", NO_OUTCOMES)
def test_what_is_no_outcome_is_refused(value):
    with pytest.raises(InvalidInputError, match="outcome must be a number from -1"):
        Feedback("turn", value)
    with pytest.raises(InvalidInputError, match="outcome must be a number"):
        Credit(value)
    with pytest.raises(InvalidInputError, match="the credit of 'a' must be a number"):
        Credit(1.0, documents={"a": value})


@pytest.mark.parametrize("value", [*NO_OUTCOMES, -0.1])
def test_what_is_no_weight_is_refused(value):
    with pytest.raises(InvalidInputError, match="weight must be a number from 0 to 1"):
        Credit(1.0, value)


def test_a_credit_knows_what_a_success_rests_on():
    assert Credit(1.0, documents={"b": 0.5, "a": 0.0, "c": 1.0, "d": -1.0}).used == ("b", "c")


def documents(outcome, supported=None, **known):
    """Credit by document."""
    return assign_credit(TURN, Feedback("t", outcome, **known), supported, 1.0).documents


HALF = {"a": 1.0, "b": 0.5, "c": 0.0}


@pytest.mark.parametrize("z", [1.0, 0.3, 0.0, -0.8, -1.0])
@pytest.mark.parametrize(
    ("known", "supported", "expected"),
    [
        # Used gets the outcome, the rest nothing.
        ({"used": ["b"]}, None, {"a": 0, "b": 1, "c": 0}),
        ({"used": []}, None, {"a": 0, "b": 0, "c": 0}),
        # Unused alone says nothing of the others.
        ({"unused": ["a", "b"]}, None, {"a": 0, "b": 0}),
        # What was not returned gets no credit: walked past, unknown, or supported by mistake.
        ({"used": ["a", "walked", "unknown"]}, None, {"a": 1, "b": 0, "c": 0}),
        ({"unused": ["a", "walked"]}, None, {"a": 0}),
        ({}, {"a": 1.0, "walked": 1.0}, {"a": 1, "b": 0, "c": 0}),
        ({}, {"walked": 1.0}, {}),
        # Support shares the outcome.
        ({"answer": "?"}, HALF, HALF),
        # Nothing finer known, also with a correction: the outcome is that of the whole turn.
        *[({"answer": "?"}, nothing, {}) for nothing in (None, {}, {"a": 0.0, "b": 0.0})],
        ({"correction": "Rather so."}, None, {}),
        ({"correction": "Rather so."}, {"a": 0.0, "b": 0.0}, {}),
        # What the host says goes before what was found; unused before used.
        ({"used": ["b"]}, {"a": 1.0}, {"a": 0, "b": 1, "c": 0}),
        ({"unused": ["a"]}, {"a": 1.0, "b": 0.5}, {"a": 0, "b": 0.5, "c": 0}),
        ({"used": ["a", "b"], "unused": ["b"]}, None, {"a": 1, "b": 0, "c": 0}),
    ],
)
def test_shares_of_the_outcome(z, known, supported, expected):
    found = documents(z, supported, **known)
    assert found == pytest.approx({node: z * share for node, share in expected.items()})
    # A negative zero would be shown as blame.
    assert all(math.copysign(1.0, value) > 0 for value in found.values() if value == 0)


def test_what_was_found_out_is_kept_apart_from_what_was_said():
    """A document that the host calls unused is known to be."""
    found = assign_credit(
        TURN, Feedback("t", 1.0, unused=["c"], answer="?"), {"a": 1.0, "b": 0.0}, 1.0
    )
    assert found.inferred == {"a", "b"}
    assert found.has_stated_use
    assert not assign_credit(TURN, Feedback("t", 1.0, answer="?"), {"a": 1.0}, 1.0).has_stated_use
    assert not assign_credit(TURN, Feedback("t", 1.0, used=["a"], answer="?"), None, 1.0).inferred


def test_outcome_and_weight_are_kept():
    """Weight scales what is learned, not what is said."""
    found = assign_credit(TURN, Feedback("t", -0.5, used=["a"]), None, 0.25)
    assert (found.outcome, found.weight, found.documents["a"]) == (-0.5, 0.25, -0.5)
    assert found.used == ()


@pytest.mark.parametrize(
    ("clocks", "delay", "expected"),
    [
        # With λ = ln 2 a turn counts half of the next one; a gap of two turns counts as two.
        ([3, 4, 5], math.log(2), [1 / 7, 2 / 7, 4 / 7]),
        ([8, 10], math.log(2), [1 / 5, 4 / 5]),
        ([1, 2, 3, 500], 0.0, [1 / 4] * 4),
        ([1, 2, 3, 500], 50.0, [0, 0, 0, 1]),
    ],
)
def test_late_feedback_is_shared_by_recency(clocks, delay, expected):
    found = share_by_recency(clocks, delay)
    assert found == pytest.approx(expected)
    assert sum(found) == pytest.approx(1.0)
