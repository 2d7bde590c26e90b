"""Sessions are split by a hash that never changes; arms never share a namespace."""

import subprocess
import sys
import uuid

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
    """These numbers must never change: sessions would move between arms."""
    assert hash_position("walks", session) == at


def test_the_share_is_kept():
    """Within one per cent over 20,000 ids."""
    for share in (0.1, 0.5, 0.9):
        treated = sum(
            assign_arm("walks", share, f"session {n}") == "treatment" for n in range(20_000)
        )
        assert treated / 20_000 == pytest.approx(share, abs=0.01)


def test_a_larger_share_keeps_whom_it_had():
    """So a trial can be widened under a new decision without moving those treated."""
    few = {n for n in range(500) if assign_arm("walks", 0.2, n) == "treatment"}
    assert few < {n for n in range(500) if assign_arm("walks", 0.6, n) == "treatment"}


def test_the_ends_of_the_share():
    """Nobody, and everybody."""
    assert {assign_arm("walks", 0.0, n) for n in range(200)} == {"control"}
    assert {assign_arm("walks", 1.0, n) for n in range(200)} == {"treatment"}


def test_two_trials_split_independently():
    """Half of the treated of one are treated by the other."""
    treated = [n for n in range(4000) if assign_arm("one", 0.5, n) == "treatment"]
    both = sum(assign_arm("two", 0.5, n) == "treatment" for n in treated)
    assert both / len(treated) == pytest.approx(0.5, abs=0.05)


def test_another_process_says_the_same():
    """Python's own hash would not."""
    code = (
        "from crabpath_retrievers.ab.state import hash_position; "
        "print(hash_position('walks', 'ann/1'))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(told.stdout) == hash_position("walks", "ann/1")


def test_a_uuid_is_its_text():
    """Hosts pass either."""
    session = uuid.uuid4()
    assert hash_position("walks", session) == hash_position("walks", str(session))


@pytest.mark.parametrize("session", ["x" * 1_000_000, "\ud800", "日本語" * 200, "a\x00b"])
def test_odd_sessions_have_a_place_and_a_label(session):
    """Huge, a lone surrogate, unicode, NUL: each can be hashed and stored."""
    assert 0.0 <= hash_position("walks", session) < 1.0
    label = make_session_label(session)
    assert 0 < len(label) <= 200
    assert label.encode()
    assert "\x00" not in label


def test_long_sessions_stay_apart():
    """They are recorded by their hash."""
    assert make_session_label("x" * 300) != make_session_label("x" * 301)


@pytest.mark.parametrize("session", ["", "  ", None, True, 1.5, b"x"])
def test_no_session(session):
    """One sentence, no arm."""
    with pytest.raises(InvalidInputError, match="session_id must be a non-empty text"):
        hash_position("walks", session)


@pytest.mark.parametrize("name", ["", "a b", "a#b", "a:b", "-a", "x" * 41, None, "é"])
def test_names_that_cannot_be_used(name):
    """They stand in namespaces and labels."""
    with pytest.raises(InvalidInputError, match="the name of a trial must be"):
        require_trial_name(name)


def test_namespaces_of_the_arms():
    """The control is the user's own one unless both begin afresh."""
    assert make_arm_namespace("t", "control", "ann", fresh=False) == "ann"
    assert make_arm_namespace("t", "treatment", "ann", fresh=False) == "ann#t"
    assert make_arm_namespace("t", "control", "ann", fresh=True) == "ann#t:control"


@pytest.mark.parametrize("user", ["ann#t", "ann#t:control"])
def test_an_arm_is_no_user(user):
    """Else one user would learn in the arm of another."""
    with pytest.raises(InvalidInputError, match="is an arm of trial"):
        make_arm_namespace("t", "control", user, fresh=False)


@pytest.mark.parametrize("user", ["", " ", "x" * 513, "x" * 512])
def test_users_that_cannot_be_namespaces(user):
    """With the suffix it must fit, too."""
    with pytest.raises(InvalidInputError, match="namespace must"):
        make_arm_namespace("t", "treatment", user, fresh=False)
