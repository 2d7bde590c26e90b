"""State of a trial, as stored.

Assigns sessions to arms by hash, so that every process assigns them alike.

The fail rule: the treatment is corrected too often at several checkpoints in a row.
"""

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal
from uuid import UUID

from pydantic import TypeAdapter

from crabpath_retrievers.config.maintenance import TrialSettings
from crabpath_retrievers.core.query import namespace_of, require_number, session_of
from crabpath_retrievers.errors import InvalidInputError

Arm = Literal["control", "treatment"]
ARMS: tuple[Arm, Arm] = ("control", "treatment")
SessionId = str | int | UUID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def require_trial_name(name: str) -> str:
    """Return the name of a trial if it is valid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = (
            "the name of a trial must be 1 to 40 letters, digits, '.', '-' or '_', the first one "
            f"a letter or digit, not {name!r:.100}"
        )
        raise InvalidInputError(msg)
    return name


def hash_position(name: str, session_id: SessionId) -> float:
    """Hash a session to a number in [0, 1), differently for each trial."""
    text = f"{name}\x00{session_of(session_id)}".encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return (number >> 11) / 2**53


def assign_arm(name: str, share: float, session_id: SessionId) -> Arm:
    """Return the arm of a session: ``treatment`` for a ``share``, in [0, 1], of all sessions."""
    return "treatment" if hash_position(name, session_id) < share else "control"


def make_suffix(name: str, arm: Arm, *, fresh: bool) -> str:
    """Return the suffix of an arm's namespaces; empty for a control without its own namespaces."""
    if arm == "treatment":
        return f"#{name}"
    return f"#{name}:control" if fresh else ""


def make_arm_namespace(name: str, arm: Arm, user: str, *, fresh: bool) -> str:
    """Return the namespace of a user in an arm."""
    own = namespace_of(user)
    if own.endswith((f"#{name}", f"#{name}:control")):
        msg = f"{user!r:.100} is an arm of trial {name!r}: pass the user's own namespace"
        raise InvalidInputError(msg)
    return namespace_of(own + make_suffix(name, arm, fresh=fresh))


@dataclass(frozen=True, slots=True)
class TrialCheckpoint:
    """Counts of the turns since the checkpoint before.

    Attributes:
        since, until: Period of the turns, in seconds since the epoch.
        control_turns, treatment_turns: Number of turns.
        control_corrected, treatment_corrected: Number of corrected turns.
        worse: Whether the treatment was corrected too often.
    """

    since: float
    until: float
    control_turns: int
    control_corrected: int
    treatment_turns: int
    treatment_corrected: int
    worse: bool


def is_worse(control: tuple[int, int], treatment: tuple[int, int], ratio: float) -> bool:
    """Whether the correction rate of the treatment is above that of the control times ``ratio``.

    Equality does not count; the comparison is exact, in rational numbers.

    Args:
        control: ``(turns, corrected)``.
        treatment: ``(turns, corrected)``.
        ratio: For example 1.2 for 20 % more.
    """
    bound = Fraction(str(ratio)) * control[1] * treatment[0]
    return treatment[1] * control[0] > bound


def has_failed(checkpoints: Sequence[TrialCheckpoint], row: int) -> bool:
    """Whether all of the last ``row`` checkpoints were worse."""
    last = checkpoints[-row:]
    return len(last) == row and all(checkpoint.worse for checkpoint in last)


TrialStatus = Literal["running", "rolled_back", "promoted"]


@dataclass(frozen=True, slots=True)
class TrialState:
    """State of a trial.

    Attributes:
        name: Name, unique in its store.
        share: Share of the sessions that get the treatment, in [0, 1].
        fresh: Whether the control has its own namespaces, too.
        settings: Sizes, confidence and fail rule.
        started: Time of the start, in seconds since the epoch.
        status: ``running`` until the trial is rolled back or promoted.
        ended: Time of the end, in seconds since the epoch; None while it runs.
        reason: Why it ended.
        checkpoints: Checkpoints, oldest first.
    """

    name: str
    share: float
    fresh: bool
    settings: TrialSettings
    started: float
    status: TrialStatus = "running"
    ended: float | None = None
    reason: str | None = None
    checkpoints: tuple[TrialCheckpoint, ...] = ()

    @classmethod
    def new(cls, name: str, share: float, settings: TrialSettings, *, fresh: bool) -> "TrialState":
        """Make the state of a trial that starts now."""
        number = require_number("share", share, 0.0, 1.0)
        return cls(require_trial_name(name), number, bool(fresh), settings, time.time())

    def end(self, status: TrialStatus, reason: str) -> "TrialState":
        """Return the state of the trial, ended now."""
        return replace(self, status=status, ended=time.time(), reason=reason)

    def to_json(self) -> str:
        """Serialise the state."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "TrialState":
        """The inverse of :meth:`to_json`."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(TrialState)
