"""The fail rule, the bootstrap and the verdict, by hand."""

import math

import pytest

from crabpath_retrievers.ab.comparison import (
    Comparison,
    decide_verdict,
    estimate_interval,
    pair_units,
)
from crabpath_retrievers.ab.state import TrialCheckpoint, TrialState, has_failed, is_worse
from crabpath_retrievers.config.maintenance import TrialSettings
from crabpath_retrievers.errors import InvalidInputError

SETTINGS = TrialSettings(directional_turns=10, decisive_turns=20, min_sessions=2, resamples=2000)


@pytest.mark.parametrize(
    ("control", "treatment", "ratio", "worse"),
    [
        ((100, 10), (100, 12), 1.2, False),  # exactly 20 % more
        ((100, 10), (100, 13), 1.2, True),
        ((70, 7), (50, 6), 1.2, False),  # 0.12 is 1.2 × 0.1, which floats do not know
        ((100, 0), (100, 0), 1.2, False),
        ((100, 0), (100, 1), 1.2, True),
        ((100, 10), (100, 10), 1.0, False),
    ],
)
def test_the_bound_itself_is_not_worse(control, treatment, ratio, worse):
    assert is_worse(control, treatment, ratio) is worse


def test_two_in_a_row_have_failed():
    good, bad = (TrialCheckpoint(0, 1, 1, 1, 1, 1, worse) for worse in (False, True))
    assert has_failed([good, bad, bad], 2)
    for row in ([], [bad], [bad, good, bad], [bad, bad, good]):
        assert not has_failed(row, 2)


def test_paired_bootstrap_by_hand():
    """Of the differences 0 and 1 half of the resamples have mean .5, a quarter each 0 and 1."""
    assert estimate_interval([1, 1], [1, 2], SETTINGS, paired=True) == (0.0, 1.0)
    wide = TrialSettings(confidence=0.4, resamples=2000)  # from 30 % to 70 %: all of them .5
    assert estimate_interval([1, 1], [1, 2], wide, paired=True) == (0.5, 0.5)
    # The same shift of very different units: certain in pairs, lost among them otherwise.
    control, treatment = [0.0, 10.0, 20.0, 30.0], [1.0, 11.0, 21.0, 31.0]
    assert estimate_interval(control, treatment, SETTINGS, paired=True) == (1.0, 1.0)
    low, high = estimate_interval(control, treatment, SETTINGS, paired=False)
    assert low < 0 < high


@pytest.mark.parametrize(
    ("arms", "users", "expected"),
    [
        (({"b": 2, "a": 1}, {"a": 3, "b": 4}), ("uu", "uu"), ("session", [1, 2], [3, 4])),
        (({"a": 1, "b": 3, "c": 5}, {"d": 7, "e": 8}), ("uuv", "uv"), ("user", [2, 5], [7, 8])),
        # One pair is too few; or they would stand for less than half of the sessions.
        (({"a": 1, "b": 3}, {"d": 7, "e": 8}), ("uv", "uw"), ("none", [1, 3], [7, 8])),
    ],
)
def test_sessions_are_paired_or_users_or_nothing(arms, users, expected):
    named = [dict(zip(sorted(arm), of, strict=True)) for arm, of in zip(arms, users, strict=True)]
    assert pair_units(arms, named, 2) == expected


def comparison(metric="correction_rate", low=-2.0, high=-1.0, *, enough=True):
    better = "lower" if metric == "correction_rate" else "higher"
    return Comparison(metric, better, "none", 9, 9, 2.0, 1.0, -1.0, low, high, enough)


@pytest.mark.parametrize(
    ("metric", "ends", "proven"),
    [
        ("correction_rate", (-2.0, -1.0), "better"),
        ("correction_rate", (1.0, 2.0), "worse"),
        ("success_rate", (0.1, 0.2), "better"),
        ("success_rate", (-0.2, -0.1), "worse"),
        ("success_rate", (0.0, 0.2), None),
        ("correction_rate", (-1.0, 0.0), None),
        ("correction_rate", (None, None), None),
    ],
)
def test_what_an_interval_proves(metric, ends, proven):
    assert comparison(metric, *ends).proven == proven


BETTER, WORSE = comparison(), comparison("success_rate", -0.2, -0.1)
OPEN = comparison("success_rate", -0.1, 0.1)


@pytest.mark.parametrize(
    ("turns", "given", "verdict"),
    [
        ((9, 100), [BETTER, OPEN], "too little data"),
        ((10, 10), [BETTER, OPEN], "continue"),
        ((19, 20), [BETTER, OPEN], "continue"),
        ((20, 20), [BETTER, OPEN], "promote"),
        ((20, 20), [BETTER, WORSE], "roll back"),
        ((10, 10), [WORSE], "roll back"),
        ((20, 20), [OPEN], "continue"),
        ((20, 20), [comparison(enough=False)], "too little data"),
        ((0, 0), [], "too little data"),
    ],
)
def test_verdicts(turns, given, verdict):
    """Promotion needs decisive data and nothing worse; harm needs less."""
    state = TrialState.new("t", 0.5, SETTINGS, fresh=False)
    assert decide_verdict(state, turns, given)[0] == verdict


@pytest.mark.parametrize("share", [-0.01, 1.01, math.nan, math.inf, "half", None, True])
def test_shares_that_cannot_be(share):
    with pytest.raises(InvalidInputError, match="share must be a number from 0 to 1"):
        TrialState.new("t", share, SETTINGS, fresh=False)
