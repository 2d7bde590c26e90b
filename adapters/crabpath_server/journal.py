"""Entries of the log: the facts that are known of the request that is being answered."""

import logging
import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import get_current_span
from starlette.datastructures import Headers
from starlette.types import Scope

from crabpath_server.metrics import count_active, count_request

REQUEST_ID = "X-Request-Id"

_log = logging.getLogger("crabpath_server.requests")
_SAFE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")  # all others are replaced: they reach logs
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_PLACES = frozenset({"/", "/metrics", "/mcp", "/openapi.json"})
_LEFT = 499  # the client left before it was answered
_REFUSED = frozenset({401, 403})


@dataclass(slots=True)
class Entry:
    """One request; no text of a document or question is part of it.

    Attributes:
        id: The header ``X-Request-Id`` of the request, or a new one.
        trace: Id of the trace that it belongs to; None without one.
        method: Method of HTTP, ``_OTHER`` for an unknown one.
        route: Template of the path, such as ``/v1/turns/{id}``.
        tool: The tool of MCP that was called.
        namespace: The namespace of the request.
        token: Id of its token.
        turn: The turn that it asked, or was about.
        error: Kind of the error that was the answer.
        refusal: Sentence with which a token was refused.
        status: Status of the answer.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    trace: str | None = None
    method: str = "_OTHER"
    route: str | None = None
    tool: str | None = None
    namespace: str | None = None
    token: str | None = None
    turn: str | None = None
    error: str | None = None
    refusal: str | None = None
    status: int | None = None
    begun: float = field(default_factory=time.perf_counter)

    def to_facts(self) -> dict[str, Any]:
        """Return what is known by the names of the log."""
        names = ("trace", "route", "tool", "namespace", "token", "turn")
        found = {name: getattr(self, name) for name in names}
        facts = {"request": self.id, "method": self.method, **found}
        return {name: value for name, value in facts.items() if value is not None}

    def finish(self) -> None:
        """Count the request, and write its line."""
        seconds, status = time.perf_counter() - self.begun, self.status or _LEFT
        route = self.route or "none"
        count_request(self.method, route, status, seconds)
        level = logging.WARNING if status >= 500 or status in _REFUSED else logging.INFO  # noqa: PLR2004
        facts = {"route": route, "status": status, "ms": round(seconds * 1000, 1)}
        facts |= {"error": self.error, "refusal": self.refusal}
        _log.log(level, "request", extra={"facts": facts})


_current: ContextVar[Entry] = ContextVar("crabpath_request")


def begin_entry(scope: Scope) -> Entry:
    """Begin the entry of a request, which belongs to the current task; it must be finished."""
    headers = Headers(scope=scope)
    given, parent = headers.get(REQUEST_ID, ""), _TRACE.fullmatch(headers.get("traceparent", ""))
    entry = Entry(given) if _SAFE_ID.fullmatch(given) else Entry()
    span = get_current_span().get_span_context()
    entry.trace = parent[1] if parent else f"{span.trace_id:032x}" if span.is_valid else None
    entry.method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if path in _PLACES or path.startswith("/static/"):
        entry.route = path if path in _PLACES else "/static"
    _current.set(entry)
    count_active(1)
    return entry


def get_entry() -> Entry:
    """Get the entry of the request that this task answers; a new one outside of requests."""
    return _current.get(None) or Entry()


def find_facts() -> dict[str, Any]:
    """Find what is known of the request that this task answers; nothing outside of requests."""
    entry = _current.get(None)
    return {} if entry is None else entry.to_facts()
