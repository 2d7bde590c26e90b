"""Credit: what a feedback says of each returned document, and of no other."""

import math

import pytest

from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.turn import ReturnedDocument, Turn
from crabpath_retrievers.learning.credit import assign_credit

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


def documents(outcome, supported=None, **known):
    """Credit by document."""
    return assign_credit(TURN, Feedback("t", outcome, **known), supported, 1.0).documents


@pytest.mark.parametrize("z", [1.0, 0.3, -0.4, -1.0])
def test_used_gets_the_outcome_and_the_rest_gets_nothing(z):
    """Blame in a failure, praise in a success, 0 for what was not used."""
    assert documents(z, used=["b"]) == {"a": 0.0, "b": z, "c": 0.0}
    assert documents(z, used=[]) == {"a": 0.0, "b": 0.0, "c": 0.0}


@pytest.mark.parametrize("z", [1.0, -1.0])
def test_what_was_not_returned_gets_no_credit(z):
    """Walked past, unknown, or supported by mistake."""
    assert set(documents(z, used=["a", "walked", "unknown"])) == set("abc")
    assert set(documents(z, unused=["a", "walked"])) == {"a"}
    assert documents(z, {"a": 1.0, "walked": 1.0}) == {"a": z, "b": 0.0, "c": 0.0}
    assert documents(z, {"walked": 1.0}) == {}


@pytest.mark.parametrize("z", [1.0, -1.0])
def test_unused_alone_says_nothing_of_the_others(z):
    """They may have been used or not."""
    assert documents(z, unused=["a", "b"]) == {"a": 0.0, "b": 0.0}


def test_support_shares_the_outcome():
    """0.5 of −0.8 is −0.4."""
    found = documents(-0.8, {"a": 1.0, "b": 0.5, "c": 0.0}, answer="?")
    assert found == pytest.approx({"a": -0.8, "b": -0.4, "c": 0.0})


def test_what_was_found_out_is_told_from_what_was_said():
    """A document that the host calls unused is known to be."""
    found = assign_credit(
        TURN, Feedback("t", 1.0, unused=["c"], answer="?"), {"a": 1.0, "b": 0.0}, 1.0
    )
    assert found.inferred == {"a", "b"}
    assert found.has_stated_use
    assert not assign_credit(TURN, Feedback("t", 1.0, answer="?"), {"a": 1.0}, 1.0).has_stated_use
    assert not assign_credit(TURN, Feedback("t", 1.0, used=["a"], answer="?"), None, 1.0).inferred


@pytest.mark.parametrize("supported", [None, {}, {"a": 0.0, "b": 0.0}])
def test_nothing_finer_known(supported):
    """The outcome is that of the whole turn; so it is with a correction alone."""
    assert documents(-1.0, supported, correction="Rather so.") == {}
    assert documents(1.0, supported, answer="?") == {}


def test_what_the_host_says_goes_before_what_was_found():
    """Used before support, unused before both."""
    assert documents(1.0, {"a": 1.0}, used=["b"]) == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert documents(1.0, {"a": 1.0, "b": 0.5}, unused=["a"]) == {"a": 0.0, "b": 0.5, "c": 0.0}
    assert documents(1.0, used=["a", "b"], unused=["b"]) == {"a": 1.0, "b": 0.0, "c": 0.0}


def test_no_negative_zero():
    """It would be shown as blame."""
    found = documents(-1.0, {"a": 1.0}) | documents(0.0, used=["b"])
    assert all(math.copysign(1.0, value) > 0 for value in found.values() if value == 0)


def test_outcome_and_weight_are_kept():
    """Weight scales what is learned, not what is said."""
    found = assign_credit(TURN, Feedback("t", -0.5, used=["a"]), None, 0.25)
    assert (found.outcome, found.weight, found.documents["a"]) == (-0.5, 0.25, -0.5)
    assert found.used == ()
