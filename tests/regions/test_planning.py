"""Value iteration on worlds that are solved by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.regions.mdp import ValueFunction, run_value_iteration

A, B, C = 1, 2, 3


def count_move(region, action, led=0, trials=1.0, ends=None):
    """Steps that led to one region, or ended."""
    last = (0.0 if led else trials) if ends is None else ends
    return TransitionCount(1, region, "", action, led, trials, 0.0, last)


def test_values_by_hand():
    """V(B) = .8; with e = 1/2, V(A) = .5 R + .5 ((1 - γ) R + γ V(B))."""
    steps = [count_move(A, "go", B, 3.0), count_move(A, "go", 0, 3.0), count_move(B, "take")]
    plan = run_value_iteration(steps, {(A, "go"): 0.4, (B, "take"): 0.8}, 0.9)
    assert plan.values == pytest.approx({A: 0.5 * 0.4 + 0.5 * (0.1 * 0.4 + 0.9 * 0.8), B: 0.8})


def test_the_greedy_first_step_may_be_worse():
    """One succeeds more often itself, the other leads where success is; a loop is left."""
    steps = [
        count_move(A, "grab", C),
        count_move(A, "look", B),
        count_move(B, "take"),
        count_move(C, "out"),
    ]
    steps.append(count_move(C, "back", A))
    success = {(A, "grab"): 0.6, (A, "look"): 0.4, (B, "take"): 0.9}
    plan = run_value_iteration(steps, {**success, (C, "out"): 0.2, (C, "back"): 0.1}, 0.9)
    assert plan.actions == {A: "look", B: "take", C: "back"}
    # A loop without way out converges.
    steps = [count_move(A, "on", B), count_move(B, "on", A)]
    plan = run_value_iteration(steps, {(A, "on"): 0.6, (B, "on"): 0.6}, 0.99)
    assert plan.values == pytest.approx({A: 0.6, B: 0.6}, abs=1e-3)
    assert plan.rounds < 2000


@pytest.mark.parametrize(
    "steps", [[], [TransitionCount(1, A, "", "", 0, 5.0, 2.0)], [count_move(A, "go", 0, 0.0)]]
)
def test_no_steps_no_plan(steps):
    """What came by without action, and what was taken back, is no step."""
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
