"""Repeated blame: counted by entry, bounded, taken back by a success."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings, TierSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import Tier
from crabpath_retrievers.learning.rules.inhibition import (
    MIN_INHIBITION,
    InhibitionUpdate,
    update_inhibition,
)

SETTINGS = LearningSettings(inhibition_threshold=2)
BAD, GOOD = Credit(-1.0, documents={"d": -1.0}), Credit(1.0, documents={"d": 1.0})
EDGE = ("s", "d", "inhibits")


@pytest.fixture(scope="session")
def routed(turn_of):
    """A turn that reached d from the seed s, by way of a."""
    return turn_of(returned=[("s", "a", "d")])


def weights_after(turn, credits_):
    """The weight of the inhibitory edge, None before it stands, after each of these turns."""
    existing, counts, weights = {}, {}, []
    for credit in credits_:
        found = update_inhibition(turn, credit, existing, counts, SETTINGS)
        for pair, count in found.count_changes.items():
            counts[pair] = counts.get(pair, 0.0) + count
        for source, target, kind, delta in found.deltas:
            edge = (source, target, kind)
            existing[edge] = existing.get(edge, 0.0) + delta
        weights.append(existing.get(EDGE))
    return weights


def test_one_blame_is_counted_against_the_entry(routed):
    """Where the query entered, not where the walk had come to."""
    assert update_inhibition(routed, BAD, {}, {}, SETTINGS) == InhibitionUpdate(
        (), {("s", "d"): 1.0}
    )


def test_repeated_blame_inhibits_half_way_each_time(routed):
    """From the second turn: -.3, then -.45, then -.525; a walk sees the first already."""
    weights = weights_after(routed, [BAD] * 4)
    assert weights == [None, pytest.approx(-0.3), pytest.approx(-0.45), pytest.approx(-0.525)]
    assert TierSettings().tier_of(weights[1]) is Tier.INHIBITORY


def test_the_edge_to_be_made_is_named_once(routed):
    """Afterwards it exists."""
    assert update_inhibition(routed, BAD, {}, {("s", "d"): 1.0}, SETTINGS).promoted == (("s", "d"),)
    assert update_inhibition(routed, BAD, {EDGE: -0.3}, {("s", "d"): 2.0}, SETTINGS).promoted == ()


def test_a_success_moves_the_edge_back_but_not_above_zero(routed):
    """Half of the way to 0 each time, until a walk no longer sees it."""
    weights = weights_after(routed, [BAD, BAD, *[GOOD] * 6])
    assert weights[2:4] == [pytest.approx(-0.15), pytest.approx(-0.075)]
    assert TierSettings().tier_of(weights[-1]) is Tier.DORMANT
    assert weights[-1] < 0


def test_a_success_takes_back_a_blame(routed):
    """A document that helps as often as it misleads is never inhibited."""
    assert weights_after(routed, [BAD, GOOD] * 5) == [None] * 10
    assert update_inhibition(routed, GOOD, {}, {}, SETTINGS) == InhibitionUpdate()


def test_a_search_hit_is_blamed_at_the_best_entry(turn_of):
    """The best scored one; what is the best entry itself, at the next best one."""
    turn = turn_of(returned=[("d",), ("t",)], seeds=[("s", 0.5), ("t", 0.8)])
    both = Credit(-1.0, documents={"d": -1.0, "t": -1.0})
    assert set(update_inhibition(turn, both, {}, {}, SETTINGS).count_changes) == {
        ("t", "d"),
        ("s", "t"),
    }


def test_the_only_entry_is_not_blamed_at_itself(turn_of):
    """Nothing stands beside it that could advise against it."""
    turn = turn_of(returned=[("t",)], seeds=[("t", 0.8)])
    assert (
        update_inhibition(turn, Credit(-1.0, documents={"t": -1.0}), {}, {}, SETTINGS)
        == InhibitionUpdate()
    )


def test_without_an_entry_there_is_nothing_to_advise(turn_of):
    """A turn without seeds has no place from which to warn."""
    assert (
        update_inhibition(turn_of(returned=[("d",)], seeds=()), BAD, {}, {}, SETTINGS)
        == InhibitionUpdate()
    )


@pytest.mark.parametrize(
    "credit",
    [
        Credit(-1.0),
        Credit(-1.0, documents={"d": 0.0}),
        Credit(-1.0, documents={"elsewhere": -1.0}),
        replace(BAD, weight=0.0),
    ],
)
def test_only_returned_documents_with_known_blame_are_blamed(routed, credit):
    """A failed answer does not say which of its documents misled."""
    assert update_inhibition(routed, credit, {}, {("s", "d"): 9.0}, SETTINGS) == InhibitionUpdate()


def test_what_counts_less_takes_more_turns(routed):
    """Two turns of half weight are one blame, and an edge moves half as far."""
    half = replace(BAD, weight=0.5)
    assert weights_after(routed, [half] * 4) == [None, None, None, pytest.approx(-0.15)]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), max_size=30))
def test_inhibition_is_bounded(routed, history):
    """Whatever happens, its edge lies between -.6 and 0, and its count never falls below 0."""
    credits_ = [Credit(z, weight, {"d": z}) for z, weight in history]
    for weight in weights_after(routed, credits_):
        assert weight is None or MIN_INHIBITION <= weight <= 0


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1))
def test_inhibition_only_moves_where_the_credit_points(routed, weight, z, share):
    """A failure never weakens it, a success never strengthens it, from any weight."""
    credit = Credit(z, share, {"d": z})
    for delta in update_inhibition(routed, credit, {EDGE: weight}, {}, SETTINGS).deltas:
        assert (delta.delta < 0) == (z < 0)
