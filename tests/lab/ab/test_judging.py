"""How sessions are split, and how arms are judged: by hand."""

import math
import uuid
from functools import partial

import pytest

from crabpath_lab.ab import TrialSettings
from crabpath_lab.ab.comparison import (
    Comparison,
    decide_verdict,
    estimate_interval,
    pair_units,
)
from crabpath_lab.ab.state import (
    TrialCheckpoint,
    TrialState,
    assign_arm,
    has_failed,
    hash_position,
    is_worse,
    make_arm_namespace,
    require_trial_name,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.integration import parse_session


@pytest.mark.parametrize(
    ("session", "at"),
    [("s1", 0.9881405985381582), ("héllo 🦀", 0.08798762180174469), (7, 0.9412876337215483)],
)
def test_known_positions(session, at):
    """These numbers must never change, nor from process to process: sessions would move."""
    assert hash_position("walks", session) == at


def treated_by(name, share, number):
    return {n for n in range(number) if assign_arm(name, share, n) == "treatment"}


def test_shares_are_kept_and_larger_ones_keep_whom_the_smaller_had():
    """So a trial can be widened under a new decision without moving those treated."""
    shares = {share: treated_by("walks", share, 20_000) for share in (0.0, 0.1, 0.5, 0.9, 1.0)}
    sizes = [len(treated) / 20_000 for treated in shares.values()]
    assert sizes == pytest.approx(list(shares), abs=0.01)
    assert (sizes[0], sizes[-1]) == (0.0, 1.0)
    assert shares[0.1] < shares[0.5] < shares[0.9]


def test_two_trials_split_independently():
    one, two = treated_by("one", 0.5, 4000), treated_by("two", 0.5, 4000)
    assert len(one & two) / len(one) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("session", ["x" * 1_000_000, "\ud800", "日本語" * 200, "a\x00b"])
def test_odd_sessions_have_a_place_and_a_label(session):
    """Huge, a lone surrogate, unicode, NUL: each can be hashed and stored."""
    assert 0.0 <= hash_position("walks", session) < 1.0
    label = parse_session(session)
    assert 0 < len(label) <= 200
    assert label.encode()
    assert "\x00" not in label


def test_what_names_a_session_or_an_arm():
    session = uuid.uuid4()
    assert hash_position("walks", session) == hash_position("walks", str(session))
    assert parse_session("x" * 300) != parse_session("x" * 301)
    named = partial(make_arm_namespace, "t", user="ann")
    assert named("control", fresh=False) == "ann"
    assert named("treatment", fresh=False) == named("treatment", fresh=True) == "ann#t"
    assert named("control", fresh=True) == "ann#t:control"


NO_SESSION, NO_NAME = "session must be a non-empty text", "the name of a trial must be"
position, treated = partial(hash_position, "t"), partial(make_arm_namespace, "t", "treatment")


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        *((position, session, NO_SESSION) for session in ("", "  ", None, True, 1.5, b"x")),
        *(
            (require_trial_name, name, NO_NAME)
            for name in ("", "a b", "a#b", "a:b", "-a", "x" * 41, None, "é")
        ),
        *(
            (partial(treated, fresh=False), user, "is an arm")
            for user in ("ann#t", "ann#t:control")
        ),
        *(
            (partial(treated, fresh=False), user, "namespace must")
            for user in ("", " ", "x" * 513, "x" * 512)  # with the suffix it must fit, too
        ),
    ],
)
def test_what_cannot_be_a_session_a_name_or_a_user(call, given, says):
    with pytest.raises(InvalidInputError, match=says):
        call(given)


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
