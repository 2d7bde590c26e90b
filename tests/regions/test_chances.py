"""Posteriors of steps and values of regions: by hand, and what holds whatever was counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.regions.mdp import ValueFunction, run_value_iteration
from crabpath_retrievers.regions.success import SuccessModel

ALL, REGION = (0, 0), (1, 9)
CHAIN = (ALL, (2, 7), REGION)
LAST = {place: depth for depth, place in enumerate(CHAIN)}
S = 8.0  # strength


def count_step(place, action, trials, wins, task="", *ends):
    """A count of one place."""
    return TransitionCount(*place, task, action, 0, trials, wins, *ends)


def learn(*steps, places=(ALL, REGION), strength=S):
    """What is known after these counts."""
    return SuccessModel(places, steps, strength)


def compute_mean(wins, trials, prior):
    """Of a Beta posterior with S trials before."""
    return (wins + S * prior) / (trials + S)


EVERY = compute_mean(6, 8, 0.5)
GENERAL = compute_mean(5, 10, 0.5)
HERE = compute_mean(0, 20, compute_mean(60, 80, 0.5))
FIND = compute_mean(40, 40, compute_mean(60, 80, 0.5))
ODDS = FIND / (1 - FIND) * HERE / (1 - HERE) * 24 / 64


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # 6 of 8 steps succeed: of "find" 6 of 6, of "throw" 0 of 2; the region has no counts.
        pytest.param(
            [count_step(ALL, "find", 6, 6), count_step(ALL, "throw", 2, 0)],
            {
                ("",): EVERY,
                ("find",): compute_mean(6, 6, EVERY),
                ("throw",): compute_mean(0, 2, EVERY),
                ("new",): EVERY,
            },
            id="one place",
        ),
        # "find" succeeds everywhere, everything else fails in the region.
        pytest.param(
            [
                count_step(ALL, "find", 40, 40),
                count_step(ALL, "throw", 40, 20),
                count_step(REGION, "throw", 20, 0),
            ],
            # Of 80 steps everywhere 60 succeed: with eight trials before, odds of 64 to 24.
            {("find",): ODDS / (1 + ODDS), ("new",): HERE},
            id="an action new to a region gets what the region does to all",
        ),
        pytest.param(
            [count_step(ALL, "find", 10, 5), count_step(ALL, "find", 4, 4, "refund")],
            {
                ("find",): GENERAL,
                ("find", "cancel"): GENERAL,
                ("find", "refund"): compute_mean(4, 4, GENERAL),
            },
            id="a task refines what holds for all",
        ),
    ],
)
def test_success_by_hand(steps, expected):
    known = learn(*steps)
    assert {asked: known.success(*asked) for asked in expected} == pytest.approx(expected)


def test_quality_is_of_what_came_by():
    """Not of single steps."""
    known = learn(
        count_step(ALL, "", 10, 5),
        count_step(REGION, "", 2, 2),
        count_step(REGION, "find", 50, 0),
    )
    assert known.quality() == pytest.approx(compute_mean(2, 2, compute_mean(5, 10, 0.5)))
    assert (known.trials("find"), known.trials("find", depth=0)) == (50, 0)
    # Shares: 3 finds and 1 take everywhere, then 2 takes in the region (Dirichlet).
    finds, takes = count_step(ALL, "find", 3, 0), count_step(ALL, "take", 1, 0)
    known = learn(finds, takes, count_step(REGION, "take", 2, 0))
    everywhere = (1 + S * 0.5) / (4 + S)
    assert known.share("take") == pytest.approx((2 + S * everywhere) / (2 + S))
    # Nothing known is even; counts of other regions are passed over.
    for known in (learn(), learn(places=()), learn(count_step((1, 10), "find", 9, 0))):
        assert known.success("find") == known.success("", "refund") == known.quality() == 0.5
        assert known.actions == ()
    # Undo may leave more wins than trials, by rounding.
    known = learn(count_step(REGION, "", 1, 1.1))
    assert known.quality() == pytest.approx(compute_mean(1, 1, 0.5))


COUNT = st.tuples(
    st.sampled_from(CHAIN),
    st.sampled_from(["find", "take", "put"]),
    st.sampled_from(["", "refund"]),
    st.integers(1, 60),
    st.floats(0, 1),
)
COUNTS = st.lists(COUNT, max_size=12, unique_by=lambda one: one[:3])


@settings(max_examples=40)
@given(COUNTS, COUNT, st.integers(1, 5), st.floats(0.5, 50))
def test_estimates_are_chances_that_wins_raise_and_evidence_settles(counts, one, more, strength):
    """Strictly between 0 and 1; 10,000 steps in the region itself outweigh every belief."""
    place, action, task, trials, share = one
    steps = [count_step(where, a, n, n * rate, t) for where, a, t, n, rate in counts]
    others = [other for other in steps if other[:4] != (*place, task, action)]
    few = TransitionCount(*place, task, action, 0, trials + more, trials * share)
    known = learn(*others, few, places=CHAIN, strength=strength)
    before, after = (
        learn(*others, count, places=CHAIN) for count in (few, few._replace(wins=few.wins + more))
    )
    for depth in range(3):
        assert all(0 < known.success(a, task, depth) < 1 for a in ("find", "new", ""))
        if depth == LAST[place]:
            gain = after.success(action, task, depth) - before.success(action, task, depth)
            assert gain >= -1e-12
    assert sum(known.share(a, task) for a in known.actions) == pytest.approx(1.0)
    rate = 0.05 + 0.9 * share
    elsewhere = [other for other in steps if other.region != REGION[1]]
    known = learn(*elsewhere, count_step(REGION, "find", 10_000, 10_000 * rate), places=CHAIN)
    assert known.success("find") == pytest.approx(rate, abs=0.01)


A, B = 1, 2


def count_move(region, action, led=0, trials=1.0, ends=None):
    """Steps that led to one region, or ended."""
    last = (0.0 if led else trials) if ends is None else ends
    return TransitionCount(1, region, "", action, led, trials, 0.0, last)


def test_a_loop_without_way_out_converges():
    """What came by without action, and what was taken back, is no step."""
    steps = [count_move(A, "on", B), count_move(B, "on", A)]
    plan = run_value_iteration(steps, {(A, "on"): 0.6, (B, "on"): 0.6}, 0.99)
    assert plan.values == pytest.approx({A: 0.6, B: 0.6}, abs=1e-3)
    assert plan.rounds < 2000
    steps = [TransitionCount(1, A, "", "", 0, 5.0, 2.0), count_move(A, "go", 0, 0.0)]
    assert run_value_iteration(steps, {}, 0.9) == ValueFunction({}, {}, 0)


MOVES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.floats(0.1, 20),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=40)
@given(MOVES, st.floats(0, 1), st.floats(0.05, 0.97))
def test_values_are_chances_and_solve_the_equation(moves, chance, discount):
    """In [0, 1], the fixed point of Bellman's equation, and one action for every region."""
    steps = [count_move(r, a, led, n, n * share) for r, a, led, n, share in moves]
    success = {(s.region, s.action): (chance + s.region / 10) % 1.0 for s in steps}
    plan = run_value_iteration(steps, success, discount)
    assert plan.values.keys() == plan.actions.keys() == {s.region for s in steps}
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in plan.values.values())
    for region, value in plan.values.items():
        worths = {}
        for action in {s.action for s in steps if s.region == region}:
            mine = [s for s in steps if (s.region, s.action) == (region, action)]
            total, won = sum(s.trials for s in mine), success[region, action]
            on = [s for s in mine if s.next in plan.values]
            ended = 1 - sum(s.trials - s.ends for s in on) / total
            ahead = sum((s.trials - s.ends) / total * plan.values[s.next] for s in on)
            worths[action] = (ended + (1 - ended) * (1 - discount)) * won + discount * ahead
        assert value == pytest.approx(max(worths.values()), abs=1e-4)
        assert worths[plan.actions[region]] == pytest.approx(value, abs=1e-4)
