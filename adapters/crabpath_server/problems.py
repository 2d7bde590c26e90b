"""Errors as answers: problem details as RFC 9457 has them."""

import logging
import re
from traceback import walk_tb
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import Scope

from crabpath_retrievers.errors import (
    ConflictError,
    CrabPathError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    StoreError,
    StoreLockedError,
    TokenError,
)
from crabpath_retrievers.vectors.embedder import Embedder
from crabpath_server.endpoints import LateAnswerError, RefusedFeedbackError, describe_error
from crabpath_server.journal import REQUEST_ID, get_entry
from crabpath_server.names import SourceNames
from crabpath_server.room import TooManyRequestsError

_log = logging.getLogger(__name__)

_BASE = "crabpath_retrievers."
PROBLEM = "application/problem+json"
_PAGES = "https://crabpath.github.io/crabpath/"
VERSION = "/v1"
"""Prefix of all paths but those of probes, metrics, MCP, the description and the page."""


class UnreadBodyError(InvalidInputError):
    """A body cannot be read to its end, so that the connection cannot be used again."""


class TooLargeError(UnreadBodyError):
    """A body is larger than the limit."""


class LateBodyError(UnreadBodyError):
    """A body did not come in time."""


class NotJsonError(InvalidInputError):
    """A body is of another type than JSON."""


_STATUSES: dict[type, int] = {
    TokenError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    LateBodyError: 408,
    TooLargeError: 413,
    NotJsonError: 415,
    InvalidInputError: 400,
    StoreLockedError: 409,
    ConflictError: 409,
    LateAnswerError: 504,
    TooManyRequestsError: 429,
    CrabPathError: 503,
}
_TITLES: dict[type, str] = {  # where the name of the class says too little
    TokenError: "Token refused",
    ServiceError: "Not available",
    StoreError: "Store failed",
    CrabPathError: "Server failed",
}
_REFUSED = {"unknown_turn": 404, "outranked": 409}  # else 400
_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "1"},  # seconds
}


def answer_error(error: Exception, scope: Scope, names: SourceNames) -> JSONResponse:
    """Answer a failed request; an unexpected error is logged, and its text not sent."""
    if isinstance(error, RefusedFeedbackError):
        status = _REFUSED.get(error.receipt.reason or "", 400)
        said = {"receipt": error.receipt._asdict()}
        kind = f"{_PAGES}how-to/rest/#refused-feedback"
        return _make_problem(scope, status, kind, "Refused feedback", names.hide(str(error)), said)
    if _is_of_embedder(error):
        _log.error("the embedder failed", exc_info=error)
        msg = "the embedder of the server does not answer: try again"
        return _name_problem(scope, 503, ServiceError, msg)
    if not isinstance(error, CrabPathError):
        _log.error("a request failed", exc_info=error)
        return _name_problem(scope, 500, CrabPathError, "the server failed: its log says why")
    kinds = type(error).__mro__
    status = next(_STATUSES[kind] for kind in kinds if kind in _STATUSES)
    public = next(kind for kind in kinds if kind.__module__ == CrabPathError.__module__)
    headers = {"Connection": "close"} if isinstance(error, UnreadBodyError) else None
    if isinstance(error, TooManyRequestsError):
        headers = {"Retry-After": str(error.seconds)}
    return _name_problem(scope, status, public, names.hide(describe_error(error)), headers)


def _is_of_embedder(error: Exception) -> bool:
    """Whether an error is no error of ours, and was raised in what embeds texts."""
    frames = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    ours = [name for name in frames if name.startswith(_BASE)]
    return not isinstance(error, CrabPathError) and ours[-1:] == [Embedder.__module__]


def answer_ending(scope: Scope) -> JSONResponse:
    """Answer a request that is cancelled because the server ends."""
    msg = "the server ends; what was asked for may still be done"
    return _name_problem(scope, 503, ServiceError, msg)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answer where a path or a method does not exist; for an old path, with the new one."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    kind: type[CrabPathError] = InvalidInputError
    message = str(error)
    if status == 404:  # noqa: PLR2004
        kind, message = NotFoundError, "there is nothing at this path: see /openapi.json"
        root, path = request.scope.get("root_path", ""), request.scope["path"]
        path, sent = path.removeprefix(root), _find_sent_path(request.scope, root)

        def is_there(path: str) -> bool:
            moved = {**request.scope, "path": root + path}
            return any(route.matches(moved)[0] is not Match.NONE for route in request.app.routes)

        if is_there(VERSION + path):
            message = f"this path begins with {VERSION} now: use {quote(root)}{VERSION}{sent}"
        elif (
            path.startswith(f"{VERSION}/")
            and path != f"{VERSION}/"
            and is_there(path.removeprefix(VERSION))
        ):
            other = quote(root) + sent.removeprefix(VERSION)
            message = f"this path does not begin with {VERSION}: use {other}"
    elif status == 405:  # noqa: PLR2004
        message = "this path has no such method: see /openapi.json"
    headers = getattr(error, "headers", None)
    return _name_problem(request.scope, status, kind, message, headers)


def _find_sent_path(scope: Scope, root: str) -> str:
    """Find the path below ``root`` as it was sent, percent-encoded."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    return str(raw.decode("ascii", "replace")).partition("?")[0].removeprefix(quote(root))


def _name_problem(
    scope: Scope, status: int, kind: type[Exception], detail: str, headers: Any = None
) -> JSONResponse:
    """Make a problem of the type of one of our public errors."""
    name = kind.__name__
    words = (
        _TITLES.get(kind)
        or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.removesuffix("Error")).capitalize()
    )
    where = f"{_PAGES}reference/errors/#{name.lower()}"
    return _make_problem(scope, status, where, _TITLES.get(kind, words), detail, headers=headers)


def _make_problem(
    scope: Scope,
    status: int,
    kind: str,
    title: str,
    detail: str,
    more: dict[str, Any] | None = None,
    headers: Any = None,
) -> JSONResponse:
    entry = get_entry()
    entry.error = title
    if status in {401, 403}:
        entry.refusal = detail
    problem = {
        "type": kind,
        "title": title,
        "status": status,
        "detail": detail,
        "instance": quote(scope["path"], errors="replace"),
        "request_id": entry.id,
        **(more or {}),
    }
    headers = {REQUEST_ID: problem["request_id"], **(headers or _HEADERS.get(status, {}))}
    return JSONResponse(problem, status, headers, PROBLEM)
