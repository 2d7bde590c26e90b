"""The running mean of outcomes, and what is above or below it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.baseline import Baseline, advantage
from crabpath_retrievers.errors import InvalidInputError


def after(*outcomes):
    """The baseline after these outcomes."""
    baseline = Baseline()
    for z in outcomes:
        baseline = baseline.with_outcome(z)
    return baseline


def test_it_is_the_mean_of_the_outcomes():
    """Of 1, 1, -1 and 0 it is a quarter."""
    assert after() == Baseline(0.0, 0)
    assert after(1, 1, -1, 0) == Baseline(0.25, 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.5, "1", None, True])
def test_what_is_no_outcome_is_refused(value):
    """Neither an outcome nor a stored mean may be anything but a number in [-1, 1]."""
    with pytest.raises(InvalidInputError, match=r"from -1 \(failure\) to 1 \(success\)"):
        Baseline().with_outcome(value)
    with pytest.raises(InvalidInputError, match="the mean outcome must be"):
        Baseline(value)


@pytest.mark.parametrize(
    ("z", "baseline", "expected"),
    [
        (1.0, 0.0, 1.0),
        (1.0, 0.8, 0.2),
        (0.5, 0.8, 0.0),  # a success below the average
        (1.0, -1.0, 2.0),
        (-1.0, 0.8, -1.8),
        (-0.5, -0.8, 0.0),  # a failure above the average
        (0.0, 0.8, 0.0),  # returned and not used
        (0.0, -0.8, 0.0),
    ],
)
def test_the_advantage_never_turns_the_sign_of_the_credit(z, baseline, expected):
    assert advantage(z, baseline) == pytest.approx(expected)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=130))
def test_the_last_outcome_is_taken_back(outcomes):
    """In reverse order each baseline is the one before, also where it rests on the most."""
    known = [after()]
    for z in outcomes:
        known.append(known[-1].with_outcome(z))
    now = known.pop()
    for z in reversed(outcomes):
        before = known.pop()
        now = now.without(z, before.count, 0)
        assert now.count == before.count
        assert now.mean == pytest.approx(before.mean, abs=1e-6)
        assert -1 <= before.mean <= 1


def test_an_outcome_in_the_middle_is_taken_back():
    left = after(1.0, -1.0, 0.5).without(-1.0, 1, 1)
    assert (left.mean, left.count) == (pytest.approx(0.75), 2)
