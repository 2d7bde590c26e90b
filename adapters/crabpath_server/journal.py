"""Entries of the log: the facts that are known of the request that is being answered."""

import re
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.datastructures import Headers

REQUEST_ID = "X-Request-Id"

_SAFE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")  # all others are replaced: they reach logs


@dataclass(slots=True)
class Entry:
    """One request.

    Attributes:
        id: The header ``X-Request-Id`` of the request, or a new one.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)


_current: ContextVar[Entry] = ContextVar("crabpath_request")


def begin_entry(headers: Headers) -> Entry:
    """Begin the entry of a request, which belongs to the current task."""
    given = headers.get(REQUEST_ID, "")
    entry = Entry(given) if _SAFE_ID.fullmatch(given) else Entry()
    _current.set(entry)
    return entry


def get_entry() -> Entry:
    """Get the entry of the request that this task answers; a new one outside of requests."""
    return _current.get(None) or Entry()
