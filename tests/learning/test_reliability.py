"""Memories are believed as far as what they bring is used."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.reliability import (
    ADVICE_FEATURE,
    Reliability,
    measure_advice,
    measure_memories,
)
from crabpath_retrievers.core.turn import ReturnedDocument

SUMS = st.floats(0, 1000, allow_nan=False)


@pytest.mark.parametrize(
    ("spoken", "kind", "factor"),
    [
        # A new namespace believes its memories in part: they may help, and can do little harm.
        ({}, "episode", pytest.approx(0.4)),
        # What is never used loses its weight: a hundred passes leave a fiftieth.
        ({"episode": (0.0, 95.0)}, "episode", pytest.approx(0.02)),
        # What is used as often as usual is believed: it need not be right more often.
        ({"usage": (25.0, 97.0)}, "usage", 1.0),
        # Where a fifth of all documents is called used, a fifth proves nothing.
        (
            {"returned": (340.0, 1000.0), "unlikely": (120.0, 600.0), "episode": (20.0, 100.0)},
            "episode",
            pytest.approx(0.05, abs=0.05),
        ),
    ],
)
def test_memories_are_believed_as_far_as_they_are_used(spoken, kind, factor):
    assert Reliability(spoken).factor(kind) == factor


@given(SUMS, SUMS, SUMS, SUMS)
def test_going_back_restores(used, passed, more, against):
    before = Reliability({"episode": (used, used + passed)})
    said = {"episode": (more, more + against)}
    after = before.plus(said).plus(said, -1.0)
    assert 0.0 <= before.factor("episode") <= 1.0
    assert after.spoken["episode"] == pytest.approx(before.spoken["episode"], abs=1e-9)


def test_only_documents_with_credit_of_their_own_count(turn_of):
    """Of the others nothing is known; strengths below 0 speak for nobody."""
    said = {"a": {"episode": 0.5}, "b": {"episode": 0.3}, "c": {"usage": -0.2}}
    items = tuple(ReturnedDocument(n, 0.5, "seed", (), features) for n, features in said.items())
    asked = replace(turn_of(), returned=items)
    credit = Credit(1.0, 0.5, {"a": 1.0, "c": 0.0})
    assert measure_memories([(asked, credit)]) == {
        "returned": (0.5, 1.0),
        "episode": (0.25, 0.25),
    }


def returned(advice, probability=0.5):
    """A document that was ranked with this advice."""
    return ReturnedDocument(
        "a", probability, "seed", (), {ADVICE_FEATURE: advice} if advice else {}
    )


@pytest.mark.parametrize(
    ("advice", "used", "right"), [(1.0, 1.0, True), (-1.0, 0.0, True), (1.0, 0.0, False)]
)
def test_advice_earns_by_what_it_foretells(turn_of, advice, used, right):
    turn = replace(turn_of(), returned=(returned(advice),))
    won, lost = measure_advice([(turn, Credit(1.0, 1.0, {"a": used}))], 1.0, 0.0)[ADVICE_FEATURE]
    gain = math.log(2.0) - math.log1p(math.exp(-1.0 if right else 1.0))
    assert (won, lost) == pytest.approx((max(0.0, gain), max(0.0, -gain)))


def test_what_advice_did_to_the_probability_is_taken_out_first(turn_of):
    plain = replace(turn_of(), returned=(returned(1.0, 0.5),))
    moved = replace(turn_of(), returned=(returned(1.0, 1.0 / (1.0 + math.exp(-0.5))),))
    credit = Credit(1.0, 1.0, {"a": 1.0})
    assert measure_advice([(moved, credit)], 1.0, 0.5)[ADVICE_FEATURE] == pytest.approx(
        measure_advice([(plain, credit)], 1.0, 0.0)[ADVICE_FEATURE]
    )


def test_documents_without_advice_or_of_unknown_use_say_nothing(turn_of):
    inferred = Credit(1.0, 1.0, {"a": 0.0}, frozenset("a"))
    for item, credit in (
        (returned(0.0), Credit(1.0, 1.0, {"a": 1.0})),
        (returned(1.0), Credit(1.0)),
        (returned(1.0), inferred),
    ):
        assert measure_advice([(replace(turn_of(), returned=(item,)), credit)], 1.0, 0.0) == {}


def test_advice_is_believed_once_it_proved_right():
    assert Reliability().get_advice_weight() == pytest.approx(0.0474, abs=1e-4)
    assert Reliability({ADVICE_FEATURE: (3.0, 0.0)}).get_advice_weight() == pytest.approx(0.5)
    assert Reliability({ADVICE_FEATURE: (20.0, 5.0)}).get_advice_weight() > 0.99
    assert Reliability({ADVICE_FEATURE: (0.0, 1e6)}).get_advice_weight() == pytest.approx(0.0)
