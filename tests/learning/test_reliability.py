"""Memories are believed as far as what they bring is used."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.reliability import Reliability, measure_memories
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
