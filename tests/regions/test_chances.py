"""Posteriors of steps: by hand, backing off, and what must hold whatever was counted."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.regions.success import SuccessModel, log_odds, shift_log_odds

CHAIN = ((0, 0), (2, 7), (1, 9))
LAST = {place: depth for depth, place in enumerate(CHAIN)}
S = 8.0  # strength


def step(place, action, trials, wins, task="", *ends):
    """A count of one place."""
    return TransitionCount(*place, task, action, 0, trials, wins, *ends)


def chances(*steps, places=CHAIN, strength=S):
    """Of these counts."""
    return SuccessModel(places, steps, strength)


def mean(wins, trials, prior):
    """Of a Beta posterior with S trials before."""
    return (wins + S * prior) / (trials + S)


def test_nothing_known_is_even():
    """Half, wherever, whatever; also where there are no regions at all."""
    for known in (chances(), chances(places=())):
        assert known.success("find") == known.success("", "refund") == known.quality() == 0.5
        assert known.credit(0.25) == pytest.approx(0.25)
        assert known.actions == ()


def test_one_place_by_hand():
    """Everything: 6 of 8 steps succeed; of "find" 6 of 6, of "throw" 0 of 2."""
    known = chances(step((0, 0), "find", 6, 6), step((0, 0), "throw", 2, 0), places=CHAIN[:1])
    every = (6 + 8 * 0.5) / (8 + 8)
    assert every == 0.625
    assert known.success("") == pytest.approx(every)
    assert known.success("find") == pytest.approx((6 + 8 * 0.625) / (6 + 8))
    assert known.success("throw") == pytest.approx((0 + 8 * 0.625) / (2 + 8))
    assert known.success("never seen") == pytest.approx(every)


def test_an_action_new_to_a_region_gets_what_the_region_does_to_all():
    """In log-odds: "find" succeeds everywhere, everything else fails in the region."""
    known = chances(
        step((0, 0), "find", 40, 40),
        step((0, 0), "throw", 40, 20),
        step((1, 9), "throw", 20, 0),
        places=((0, 0), (1, 9)),
    )
    everywhere = mean(60, 80, 0.5)
    find = mean(40, 40, everywhere)
    here = mean(0, 20, everywhere)
    shift = math.log(here / (1 - here)) - math.log(everywhere / (1 - everywhere))
    expected = 1 / (1 + math.exp(-(math.log(find / (1 - find)) + shift)))
    assert known.success("find") == pytest.approx(expected)
    assert here < known.success("find") < find
    assert known.success("never seen") == pytest.approx(here)


def test_a_region_without_counts_is_as_the_coarser_one():
    """Down to the namespace."""
    counts = (step((0, 0), "find", 5, 1), step((0, 0), "take", 5, 5))
    for action in ("find", "take", ""):
        known = chances(*counts)
        assert known.success(action) == pytest.approx(known.success(action, depth=0))
    assert chances(*counts).success("find", depth=2) == chances(*counts).success("find")


def test_a_task_refines_what_holds_for_all():
    """By hand at one place; a task that nobody met is as all tasks."""
    known = chances(
        step((0, 0), "find", 10, 5), step((0, 0), "find", 4, 4, "refund"), places=CHAIN[:1]
    )
    general = mean(5, 10, 0.5)
    assert known.success("find") == known.success("find", "cancel") == pytest.approx(general)
    assert known.success("find", "refund") == pytest.approx(mean(4, 4, general))


def test_what_a_task_changes_everywhere_it_changes_in_regions():
    """The shift is handed down, in log-odds, and refined by what is known there."""
    known = chances(
        step((0, 0), "find", 10, 5),
        step((0, 0), "find", 4, 4, "refund"),
        step((1, 9), "find", 2, 0),
        places=((0, 0), (1, 9)),
    )
    shift = log_odds(known.success("find", "refund", depth=0)) - log_odds(
        known.success("find", depth=0)
    )
    assert shift > 0
    expected = shift_log_odds(known.success("find"), shift)
    assert known.success("find", "refund") == pytest.approx(expected)


def test_shares_by_hand():
    """Dirichlet: 3 finds and 1 take everywhere, then 2 takes in the region."""
    known = chances(
        step((0, 0), "find", 3, 0),
        step((0, 0), "take", 1, 0),
        step((1, 9), "take", 2, 0),
        places=((0, 0), (1, 9)),
    )
    everywhere = (1 + S * 0.5) / (4 + S)
    assert known.share("take") == pytest.approx((2 + S * everywhere) / (2 + S))
    assert known.share("take") + known.share("find") == pytest.approx(1.0)


def test_quality_and_credit_are_of_what_came_by():
    """Not of single steps; credit starts from the namespace's own mean, everything is passed."""
    known = chances(
        step((0, 0), "", 10, 5, "", 10, 10),
        step((1, 9), "", 2, 2, "", 2, 0),
        step((1, 9), "find", 50, 0),
        places=((0, 0), (1, 9)),
    )
    assert known.quality() == pytest.approx(mean(2, 2, mean(5, 10, 0.5)))
    assert known.credit(0.0) == pytest.approx(2 * mean(0, 2, 0.5) - 1)
    assert known.trials("find") == 50
    assert known.trials("find", depth=0) == 0


@pytest.mark.parametrize("usual", [1.0, -1.0])
def test_credit_never_leaves_its_range(usual):
    """Also where taking back has left more wins than trials, by rounding."""
    more = 900.0 * (1 + 1e-12)
    known = chances(step((1, 9), "", 900, 900, "", 900.0, more if usual > 0 else 0.0))
    assert -1.0 <= known.credit(usual) <= 1.0
    assert known.credit(usual) == pytest.approx(usual)


def test_counts_of_other_regions_are_passed_over():
    """A read of several regions may bring them."""
    assert chances(step((1, 10), "find", 9, 0)).success("find") == 0.5
    assert chances(step((1, 10), "find", 9, 0)).actions == ()


COUNT = st.tuples(
    st.sampled_from(CHAIN),
    st.sampled_from(["find", "take", "put"]),
    st.sampled_from(["", "refund"]),
    st.integers(1, 60),
    st.floats(0, 1),
)
COUNTS = st.lists(COUNT, max_size=12, unique_by=lambda one: one[:3])
QUICK = settings(max_examples=60)


def counted(counts):
    """As steps, without whatever else."""
    return [step(place, a, n, n * share, task) for place, a, task, n, share in counts]


@QUICK
@given(COUNTS, st.sampled_from(["", "refund", "cancel"]), st.floats(0.5, 50))
def test_estimates_are_chances_and_shares_sum_to_one(counts, task, strength):
    """Strictly between 0 and 1."""
    known = chances(*counted(counts), strength=strength)
    for depth in (0, 1, 2, None):
        assert all(0 < known.success(a, task, depth) < 1 for a in ("find", "new", ""))
    total = sum(known.share(action, task) for action in known.actions)
    assert total == pytest.approx(1.0) or not known.actions


@QUICK
@given(COUNTS, COUNT, st.integers(1, 5))
def test_more_wins_never_lower_an_estimate(counts, one, more):
    """Of the same action, at the same place and further down."""
    place, action, task, trials, share = one
    others = [step for step in counted(counts) if step[:4] != (*place, task, action)]
    few = TransitionCount(*place, task, action, 0, trials + more, trials * share)
    many = few._replace(wins=few.wins + more)
    for depth in range(LAST[place], 3):
        before, after = (
            chances(*others, found).success(action, task, depth) for found in (few, many)
        )
        assert after >= before - 1e-12


@QUICK
@given(COUNTS, st.floats(0.05, 0.95))
def test_evidence_brings_an_estimate_to_the_rate(counts, rate):
    """Whatever was believed, 10,000 steps in the region itself are heard."""
    others = [step for step in counted(counts) if step.region != 9]
    known = chances(*others, step((1, 9), "find", 10_000, 10_000 * rate))
    assert known.success("find") == pytest.approx(rate, abs=0.01)
