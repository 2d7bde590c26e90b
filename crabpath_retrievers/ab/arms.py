"""Assigns sessions to arms by hash, so that every process assigns them alike."""

import hashlib
import re
from typing import Literal
from uuid import UUID

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.text import to_storable

Arm = Literal["control", "treatment"]
ARMS: tuple[Arm, Arm] = ("control", "treatment")
SessionId = str | int | UUID

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MAX_LABEL_CHARS = 200


def require_trial_name(name: str) -> str:
    """Return the name of a trial if it is valid.

    Raises:
        InvalidInputError: The name is not 1 to 40 letters, digits, dots, dashes or underscores.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = (
            "the name of a trial must be 1 to 40 letters, digits, '.', '-' or '_', the first one "
            f"a letter or digit, not {name!r:.100}"
        )
        raise InvalidInputError(msg)
    return name


def hash_position(name: str, session_id: SessionId) -> float:
    """Hash a session to a number in [0, 1), differently for each trial."""
    text = f"{name}\x00{_to_text(session_id)}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return (number >> 11) / 2**53


def assign_arm(name: str, share: float, session_id: SessionId) -> Arm:
    """Return the arm of a session: ``treatment`` for a ``share``, in [0, 1], of all sessions."""
    return "treatment" if hash_position(name, session_id) < share else "control"


def make_session_label(session_id: SessionId) -> str:
    """Return the label of a session in turn records: its id, or the SHA-256 of a long id."""
    text = _to_text(session_id)
    if len(text) <= _MAX_LABEL_CHARS:
        return to_storable(text)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def make_suffix(name: str, arm: Arm, *, fresh: bool) -> str:
    """Return the suffix of an arm's namespaces; empty for a control without its own namespaces."""
    if arm == "treatment":
        return f"#{name}"
    return f"#{name}:control" if fresh else ""


def make_arm_namespace(name: str, arm: Arm, user: str, *, fresh: bool) -> str:
    """Return the namespace of a user in an arm.

    Raises:
        InvalidInputError: The user is no valid namespace, or is the namespace of an arm already.
    """
    own = namespace_of(user)
    if own.endswith((f"#{name}", f"#{name}:control")):
        msg = f"{user!r:.100} is an arm of trial {name!r}: pass the user's own namespace"
        raise InvalidInputError(msg)
    return namespace_of(own + make_suffix(name, arm, fresh=fresh))


def _to_text(session_id: SessionId) -> str:
    known = isinstance(session_id, (str, int, UUID)) and not isinstance(session_id, bool)
    if not known or not str(session_id).strip():
        msg = f"session_id must be a non-empty text, a number or a UUID, not {session_id!r:.100}"
        raise InvalidInputError(msg)
    return str(session_id)
