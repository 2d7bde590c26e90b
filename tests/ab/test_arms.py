"""Sessions are split by a hash that never changes; arms never share a namespace."""

import uuid
from functools import partial

import pytest

from crabpath_retrievers.ab.state import (
    assign_arm,
    hash_position,
    make_arm_namespace,
    make_session_label,
    require_trial_name,
)
from crabpath_retrievers.errors import InvalidInputError


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
    label = make_session_label(session)
    assert 0 < len(label) <= 200
    assert label.encode()
    assert "\x00" not in label


def test_what_names_a_session_or_an_arm():
    session = uuid.uuid4()
    assert hash_position("walks", session) == hash_position("walks", str(session))
    assert make_session_label("x" * 300) != make_session_label("x" * 301)
    named = partial(make_arm_namespace, "t", user="ann")
    assert named("control", fresh=False) == "ann"
    assert named("treatment", fresh=False) == named("treatment", fresh=True) == "ann#t"
    assert named("control", fresh=True) == "ann#t:control"


NO_SESSION, NO_NAME = "session_id must be a non-empty text", "the name of a trial must be"
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
