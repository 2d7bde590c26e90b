"""Which arm a session belongs to: by hash, so every process and every day says the same."""

import hashlib
import re
from typing import Literal
from uuid import UUID

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.text import storable

Arm = Literal["control", "treatment"]
ARMS: tuple[Arm, Arm] = ("control", "treatment")
SessionId = str | int | UUID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MAX_LABEL_CHARS = 200


def name_of(name: str) -> str:
    """The name of a trial.

    Raises:
        InvalidInputError: It is not made of 1 to 40 letters, digits, points, dashes, underscores.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = (
            "the name of a trial must be 1 to 40 letters, digits, '.', '-' or '_', the first one "
            f"a letter or digit, not {name!r:.100}"
        )
        raise InvalidInputError(msg)
    return name


def position(name: str, session_id: SessionId) -> float:
    """Where a session falls in [0, 1); each trial shuffles sessions anew."""
    text = f"{name}\x00{_to_text(session_id)}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return (number >> 11) / 2**53


def arm_of(name: str, share: float, session_id: SessionId) -> Arm:
    """The arm of a session: ``treatment`` for a ``share`` of all of them."""
    return "treatment" if position(name, session_id) < share else "control"


def label_of_session(session_id: SessionId) -> str:
    """A session as a turn records it: its id, or where that is long its SHA-256."""
    text = _to_text(session_id)
    if len(text) <= _MAX_LABEL_CHARS:
        return storable(text)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def suffix_of(name: str, arm: Arm, *, fresh: bool) -> str:
    """What is added to a user's namespace; nothing for a control that is the user's own."""
    if arm == "treatment":
        return f"#{name}"
    return f"#{name}:control" if fresh else ""


def namespace_in(name: str, arm: Arm, user: str, *, fresh: bool) -> str:
    """The namespace of a user in an arm.

    Raises:
        InvalidInputError: The user cannot be a namespace, or is one of an arm of this trial.
    """
    own = namespace_of(user)
    if own.endswith((f"#{name}", f"#{name}:control")):
        msg = f"{user!r:.100} is an arm of trial {name!r}: pass the user's own namespace"
        raise InvalidInputError(msg)
    return namespace_of(own + suffix_of(name, arm, fresh=fresh))


def _to_text(session_id: SessionId) -> str:
    known = isinstance(session_id, (str, int, UUID)) and not isinstance(session_id, bool)
    if not known or not str(session_id).strip():
        msg = f"session_id must be a non-empty text, a number or a UUID, not {session_id!r:.100}"
        raise InvalidInputError(msg)
    return str(session_id)
