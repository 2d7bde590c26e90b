"""Repeated blame: counted by entry, bounded, taken back by a success."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings, TierSettings
from crabpath_retrievers.core.changes.learned import EdgeUpdate
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import Tier
from crabpath_retrievers.learning.rules.inhibition import (
    MIN_INHIBITION,
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


HALF = replace(BAD, weight=0.5)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        # Half of the way to the bound each time, from the second turn on.
        ([BAD] * 4, [None, -0.3, -0.45, -0.525]),
        # A success moves the edge half of the way to 0.
        ([BAD, BAD, GOOD, GOOD], [None, -0.3, -0.15, -0.075]),
        # A document that helps as often as it misleads is never inhibited.
        ([BAD, GOOD] * 5, [None] * 10),
        # Two turns of half weight are one blame, and an edge moves half as far.
        ([HALF] * 4, [None, None, None, -0.15]),
    ],
)
def test_repeated_blame_inhibits(routed, turns, expected):
    assert TierSettings().tier_of(-0.3) is Tier.INHIBITORY  # a walk sees the first weight
    assert weights_after(routed, turns) == [
        weight if weight is None else pytest.approx(weight) for weight in expected
    ]


@pytest.mark.parametrize(
    ("routes", "seeds", "expected"),
    [
        # Where the query entered, not where the walk had come to.
        ([("s", "a", "d")], [("s", 0.9)], {EDGE}),
        # A search hit at the best entry; the best entry itself at the next best one.
        (
            [("d",), ("t",)],
            [("s", 0.5), ("t", 0.8)],
            {("t", "d", "inhibits"), ("s", "t", "inhibits")},
        ),
        # Nothing stands beside the only entry; without seeds there is no place to warn from.
        ([("t",)], [("t", 0.8)], set()),
        ([("d",)], [], set()),
    ],
)
def test_the_entry_is_blamed(turn_of, routes, seeds, expected):
    turn = turn_of(returned=routes, seeds=seeds)
    blamed = Credit(-1.0, documents={"d": -1.0, "t": -1.0})
    found = update_inhibition(turn, blamed, {}, {}, SETTINGS)
    assert found == EdgeUpdate((), dict.fromkeys(expected, 1.0))


@pytest.mark.parametrize(
    ("credit", "counts"),
    [
        # A failed answer does not say which of its documents misled.
        (Credit(-1.0), {EDGE: 9.0}),
        (Credit(-1.0, documents={"d": 0.0}), {EDGE: 9.0}),
        (Credit(-1.0, documents={"elsewhere": -1.0}), {EDGE: 9.0}),
        (replace(BAD, weight=0.0), {EDGE: 9.0}),
        (GOOD, {}),
    ],
)
def test_only_returned_documents_with_known_blame_are_blamed(routed, credit, counts):
    assert update_inhibition(routed, credit, {}, counts, SETTINGS) == EdgeUpdate()


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), max_size=30))
def test_inhibition_is_bounded_and_moves_where_the_credit_points(routed, history):
    """Its edge lies between -.6 and 0; a failure never weakens it, a success never strengthens."""
    credits_ = [Credit(z, weight, {"d": z}) for z, weight in history]
    before = 0.0
    for weight, credit in zip(weights_after(routed, credits_), credits_, strict=True):
        assert weight is None or MIN_INHIBITION <= weight <= 0
        assert ((weight or 0.0) - before) * credit.outcome >= 0
        before = weight or 0.0
