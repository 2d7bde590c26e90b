"""Memories are believed as far as what they bring is used."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.learning.trust import Trust, spoken
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Returned

SUMS = st.floats(0, 1000, allow_nan=False)


def test_a_new_namespace_believes_its_memories_in_part():
    """They may help at once, and can do little harm."""
    assert Trust().factor("episode") == pytest.approx(0.4)


def test_what_is_never_used_loses_its_weight():
    """A hundred passes leave a fiftieth."""
    assert Trust({"episode": (0.0, 95.0)}).factor("episode") == pytest.approx(0.02)


def test_what_is_used_as_often_as_usual_is_believed():
    """It need not be right more often than other documents."""
    assert Trust({"usage": (25.0, 97.0)}).factor("usage") == 1.0


def test_wrong_feedback_lends_no_trust():
    """Where a fifth of all documents is called used, a fifth proves nothing."""
    noisy = {"returned": (340.0, 1000.0), "unlikely": (120.0, 600.0), "episode": (20.0, 100.0)}
    assert Trust(noisy).factor("episode") < 0.1


@given(SUMS, SUMS, SUMS, SUMS)
def test_going_back_restores(used, passed, more, against):
    """What one feedback said is taken back exactly, but for rounding."""
    before = Trust({"episode": (used, used + passed)})
    said = {"episode": (more, more + against)}
    after = before.plus(said).plus(said, -1.0)
    assert after.spoken["episode"] == pytest.approx(before.spoken["episode"], abs=1e-9)


@given(SUMS, SUMS)
def test_factors_stay_in_their_range(used, passed):
    """They scale a weight; they never turn it round."""
    assert 0.0 <= Trust({"usage": (used, used + passed)}).factor("usage") <= 1.0


def test_only_documents_with_credit_of_their_own_count(turn_of):
    """Of the others nothing is known; strengths below 0 speak for nobody."""
    said = {"a": {"episode": 0.5}, "b": {"episode": 0.3}, "c": {"usage": -0.2}}
    items = tuple(Returned(n, 0.5, "seed", (), features) for n, features in said.items())
    asked = replace(turn_of(), returned=items)
    credit = Credit(1.0, 0.5, {"a": 1.0, "c": 0.0})
    assert spoken([(asked, credit)]) == {
        "returned": (0.5, 1.0),
        "episode": (0.25, 0.25),
    }
