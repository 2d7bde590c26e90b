"""Co-use and repeated blame: worked steps, bounds, and what changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings, TierSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Tier
from crabpath_retrievers.learning.rules import (
    MIN_INHIBITION,
    infer_co_use,
    update_co_use,
    update_inhibition,
)
from tests.seams import make_change

SETTINGS = LearningSettings(hebbian_rate=0.1, promotion_threshold=2)
HABITUAL = TierSettings().habitual
AB, BA, AC, BC = ((*ends, "co_used") for ends in ("ab", "ba", "ac", "bc"))
PAIR = AB
USED = Credit(1.0, documents={"b": 1.0, "a": 1.0, "c": 0.0})
REWARD = st.floats(-1, 1)


def learn(credit=USED, existing=None, protos=None, settings=SETTINGS):
    """What joint use changes."""
    return update_co_use(credit, existing or {}, protos or {}, settings, habitual=HABITUAL)


def weigh(update):
    """Changes of weights by edge, about."""
    return pytest.approx({delta[:3]: delta.delta for delta in update.deltas})


@pytest.mark.parametrize(
    ("existing", "protos", "deltas", "counts"),
    [
        # By h (1 - w): .1 · .6 one way and .1 · .5 the other; c was not used.
        ({AB: 0.4, BA: 0.5}, {}, {AB: 0.06, BA: 0.05}, {}),
        # One count per turn, for both directions together; a link is no edge of co-use.
        ({}, {}, {}, {PAIR: 1.0}),
        ({("a", "b", "link"): 0.6}, {}, {}, {PAIR: 1.0}),
        # One Hebbian step above the habitual bar: .3 + .1 · .7.
        ({}, {PAIR: 1.0}, {AB: 0.37, BA: 0.37}, {PAIR: 1.0}),
        # Where one of two edges was lost, it comes back at the threshold.
        ({AB: 0.4}, {PAIR: 1.0}, {AB: 0.06, BA: 0.37}, {PAIR: 1.0}),
    ],
)
def test_joint_use_moves_edges_and_counts_pairs_without(existing, protos, deltas, counts):
    changed = learn(existing=existing, protos=protos)
    assert deltas == weigh(changed)
    assert changed.count_changes == counts
    assert TierSettings().tier_of(0.37) is Tier.HABITUAL


def test_what_counts_less_takes_more_turns():
    """A source of weight .1 needs twenty turns, and moves an edge by a tenth."""
    tenth = Credit(1.0, 0.1, USED.documents)
    count = 0.0
    for turn in range(1, 21):
        changed = learn(tenth, protos={PAIR: count})
        count += changed.count_changes[PAIR]
        assert bool(changed.deltas) == (turn == 20)
    assert learn(tenth, existing={AB: 0.4, BA: 0.4}).deltas[0].delta == pytest.approx(0.006)


def test_a_failure_that_names_what_is_relevant_strengthens_it():
    """What would have been right together is used together next time."""
    assert learn(Credit(-1.0, documents=USED.documents)) == learn(USED)


def test_a_crowd_counts_as_its_eight_best():
    """Of ten documents the two with least credit are left out: 8 · 7 / 2 pairs."""
    crowd = Credit(1.0, documents={f"d{n}": 1 - n / 20 for n in range(10)})
    counted = learn(crowd).count_changes
    assert len(counted) == 28
    assert {node for a, b, _ in counted for node in (a, b)} == {f"d{n}" for n in range(8)}


@given(st.floats(-1, 0, exclude_max=True), st.dictionaries(st.sampled_from("abcd"), REWARD))
def test_what_changes_nothing(returned, outcome, documents):
    """A failure, one used document, no weight; without stated use all but a bare success."""
    turn = returned(a=0.9, b=0.8)
    for credit in (
        Credit(outcome, documents={node: min(0.0, value) for node, value in documents.items()}),
        Credit(1.0, documents={"a": 1.0, "b": 0.0}),
        Credit(1.0, 0.0, {"a": 1.0, "b": 1.0}),
    ):
        assert learn(credit, {AB: 0.1}, {("c", "d", "co_used"): 9.0, PAIR: 9.0}) == make_change(
            "EdgeUpdate"
        )
        assert infer(turn, credit, existing={AB: 0.5}) == make_change("EdgeUpdate")
    # Where none of its company is there, the turn is about something else.
    found = infer(returned(a=0.9, x=0.8), existing={AB: 0.5, AC: 0.3})
    assert all(delta.delta == 0 for delta in found.deltas)


def infer(turn, credit=None, existing=None, protos=None):
    """What a scalar outcome changes."""
    known = existing or {}, protos or {}, SETTINGS
    return infer_co_use(turn, credit or Credit(1.0), *known, habitual=HABITUAL)


@pytest.mark.parametrize(
    ("beliefs", "existing", "protos", "deltas", "counts"),
    [
        # What likely mattered counts for half; c is not likely to have been needed.
        ({"a": 0.9, "b": 0.8, "c": 0.1}, {}, {}, {}, {PAIR: 0.5}),
        # The fourth common success makes two edges, one step above the habitual bar.
        ({"a": 0.9, "b": 0.8}, {}, {PAIR: 1.5}, {AB: 0.37, BA: 0.37}, {PAIR: 0.5}),
        # A success without the other end lowers an edge: by .6, as far as a was believed (.9)
        # and its other company was there (.5 of .5 + .3).
        (
            {"a": 0.9, "b": 0.8},
            {AB: 0.5, BA: 0.5, AC: 0.3},
            {},
            {AB: 0.05, BA: 0.05, AC: -0.6 * 0.9 * (0.5 / 0.8) * 0.3},
            {},
        ),
        # It takes half a count, as far as the one that was there was believed.
        (
            {"a": 0.9, "b": 0.8},
            {},
            {AC: 1.0, BC: 0.1, ("x", "y", "co_used"): 1.0},
            {},
            {PAIR: 0.5, AC: -0.45, BC: -0.1},
        ),
    ],
)
def test_bare_successes(returned, beliefs, existing, protos, deltas, counts):
    changed = infer(returned(**beliefs), existing=existing, protos=protos)
    assert deltas == weigh(changed)
    assert changed.count_changes == pytest.approx(counts)
    # In proportion to the weight of the feedback.
    half = infer(returned(**beliefs), Credit(1.0, 0.5), existing)
    whole = infer(returned(**beliefs), existing=existing)
    assert {delta[:3]: delta.delta / 2 for delta in whole.deltas} == weigh(half)


BLAMING = LearningSettings(inhibition_threshold=2)
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
        found = update_inhibition(turn, credit, existing, counts, BLAMING)
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
    found = update_inhibition(turn, blamed, {}, {}, BLAMING)
    assert found == make_change("EdgeUpdate", (), dict.fromkeys(expected, 1.0))


def test_only_returned_documents_with_known_blame_are_blamed(routed):
    """A failed answer does not say which of its documents misled."""
    for documents in ({}, {"d": 0.0}, {"elsewhere": -1.0}):
        credit = Credit(-1.0, documents=documents)
        assert update_inhibition(routed, credit, {}, {EDGE: 9.0}, BLAMING) == make_change(
            "EdgeUpdate"
        )
    weightless = replace(BAD, weight=0.0)
    assert update_inhibition(routed, weightless, {}, {EDGE: 9.0}, BLAMING) == make_change(
        "EdgeUpdate"
    )
    assert update_inhibition(routed, GOOD, {}, {}, BLAMING) == make_change("EdgeUpdate")


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), max_size=30))
def test_inhibition_is_bounded_and_moves_where_the_credit_points(routed, history):
    """Its edge lies between -.6 and 0; a failure never weakens it, a success never strengthens."""
    credits_ = [Credit(z, weight, {"d": z}) for z, weight in history]
    before = 0.0
    for weight, credit in zip(weights_after(routed, credits_), credits_, strict=True):
        assert weight is None or MIN_INHIBITION <= weight <= 0
        assert ((weight or 0.0) - before) * credit.outcome >= 0
        before = weight or 0.0
