"""The application of Starlette: endpoints, errors, events and limits."""

import asyncio
import logging
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import uvicorn
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from crabpath_retrievers.config.base import explain_first_error
from crabpath_retrievers.core.query import explain_unknown
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import (
    ConflictError,
    CrabPathError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    StoreLockedError,
    TokenError,
)
from crabpath_retrievers.server import insight, routes
from crabpath_retrievers.server.access import Access, read_token
from crabpath_retrievers.server.endpoints import (
    ApiInput,
    ApiOutput,
    Call,
    Endpoint,
    LateAnswerError,
    describe_error,
)
from crabpath_retrievers.server.mcp import McpEndpoint
from crabpath_retrievers.server.metrics import start_metrics, write_metrics
from crabpath_retrievers.server.openapi import NAMESPACE_HEADER, describe_api
from crabpath_retrievers.server.page import make_page_routes

_log = logging.getLogger(__name__)
_EVENTS = "text/event-stream"
_UNREAD_SECONDS = 60  # until the connection of a client that does not read is closed
_IDLE_SECONDS = 30  # until a connection is closed on which no whole request has come
_SLOW_AT_ONCE = 4  # ingests and maintenance runs; threads that answer questions are left
_SHUTDOWN_SECONDS = 10  # that running requests have to finish when the server ends


class _TooLargeError(InvalidInputError):
    """A body is larger than the limit."""


class _LateBodyError(InvalidInputError):
    """A body did not come in time."""


class _NotJsonError(InvalidInputError):
    """A body is of another type than JSON."""


class _UnreadAnswerError(Exception):
    """A client does not read its answer."""


_STATUSES: dict[type, int] = {
    TokenError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    _LateBodyError: 408,
    _TooLargeError: 413,
    _NotJsonError: 415,
    InvalidInputError: 400,
    StoreLockedError: 409,
    ConflictError: 409,
    LateAnswerError: 504,
    CrabPathError: 503,
}
_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    408: {"Connection": "close"},  # the rest of the body is not read
    413: {"Connection": "close"},
    503: {"Retry-After": "1"},  # seconds
}
_HTTP_ERRORS: dict[int, tuple[type, str]] = {
    404: (NotFoundError, "there is nothing at this path: see /openapi.json"),
    405: (InvalidInputError, "this path has no such method: see /openapi.json"),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests: size, time and number.

    Attributes:
        body_bytes: Most bytes of a body; a larger one is refused with status 413.
        answer_seconds: Most seconds until an answer; then the status is 504.
        slow_seconds: The same for ingests, deletions, maintenance and snapshots.
        transfer_seconds: Most seconds until a body has come in (else 408), and until a client has
            read a part of an answer (else its connection is closed).
        requests: Most requests at the same time; further ones are refused with status 503.
    """

    body_bytes: int = 8 << 20
    answer_seconds: float = 30.0
    slow_seconds: float = 3600.0
    transfer_seconds: float = 30.0
    requests: int = 256


ENDPOINTS = (*routes.ENDPOINTS, *insight.ENDPOINTS)
"""All endpoints of a server."""


def create_app(
    memory: CrabPath,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """The application that serves a memory, which stays open until the caller closes it.

    Args:
        memory: The memory.
        access: Who may do what; None grants everything to programs of this machine.
        limits: Of size, time and number of requests; None for the defaults.
        endpoints: The endpoints; by default all.
        more: Further routes, such as mounts; they authorise their requests themselves.

    Example::

        app = create_app(CrabPath.open("./memory"), access=Access.from_file("tokens.json"))
    """
    access, limits = access or Access.open_on_loopback(), limits or Limits()
    by_path: dict[str, dict[str, Endpoint]] = defaultdict(dict)
    for endpoint in endpoints:
        by_path[endpoint.path][endpoint.method] = endpoint
    slow = asyncio.Semaphore(_SLOW_AT_ONCE)
    resources = [
        Route(path.replace(":path}", ":text}"), _Resource(methods, memory, access, limits, slow))
        for path, methods in by_path.items()
    ]
    description = JSONResponse(describe_api(endpoints))
    start_metrics()

    async def answer_metrics(request: Request) -> Response:
        access.authorise(read_token(request.headers)).require("read")
        accept = request.headers.get("accept", "")
        text, kind = await asyncio.to_thread(write_metrics, accept)
        return Response(text, headers={"Content-Type": kind})

    app = Starlette(
        routes=[
            *resources,
            Route("/openapi.json", lambda _: description),
            *make_page_routes(),
            Route("/metrics", answer_metrics),
            Route("/mcp", McpEndpoint(memory, access, limits.answer_seconds), methods=["POST"]),
            *more,
        ],
        middleware=[Middleware(_Gate, access=access, limits=limits)],
        exception_handlers={HTTPException: _answer_http_exception},
    )
    app.router.redirect_slashes = False
    return app


def run_app(app: ASGIApp, listening: socket.socket) -> None:
    """Answer requests until SIGTERM or SIGINT.

    Args:
        app: The application.
        listening: A socket that listens.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; elsewhere unread answers stay in memory
        milliseconds = int(_UNREAD_SECONDS * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    config = uvicorn.Config(
        app,
        http=_PatientHttp,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listening])


class _PatientHttp(H11Protocol):
    """HTTP that ends connections on which nothing is asked.

    By h11, which bounds the head of a request: a faster parser takes one without end.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_IDLE_SECONDS, self._end)

    def _end(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class _AnyText(Convertor[str]):
    """Any text in a path; the convertor of Starlette takes no line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        """The text itself."""
        return value

    to_string = convert


register_url_convertor("text", _AnyText())


class _Resource:
    """The methods of one path."""

    def __init__(
        self,
        methods: dict[str, Endpoint],
        memory: CrabPath,
        access: Access,
        limits: Limits,
        slow: asyncio.Semaphore,
    ) -> None:
        self._methods, self._memory = methods, memory
        self._access, self._limits, self._slow = access, limits, slow

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        endpoint = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(self._methods))})
        response = await self._respond(endpoint, request)
        await response(scope, receive, send)

    async def _respond(self, endpoint: Endpoint, request: Request) -> Response:
        grant = endpoint.authorise(self._access, read_token(request.headers))
        namespace = grant.choose_namespace(request.headers.get(NAMESPACE_HEADER))
        call = Call(self._memory, grant, namespace, request.path_params)
        arguments: list[Any] = [call]
        if endpoint.input is not None:
            arguments.append(await self._read_input(endpoint.input, request))
        seconds = self._limits.slow_seconds if endpoint.is_slow else self._limits.answer_seconds
        if endpoint.stream is not None and _EVENTS in request.headers.get("accept", ""):
            events = _write_events(endpoint.stream(*arguments), seconds)
            return StreamingResponse(
                events, media_type=_EVENTS, headers={"Cache-Control": "no-store"}
            )
        try:
            answer = await asyncio.wait_for(self._answer(endpoint, arguments), seconds)
        except asyncio.TimeoutError:
            raise LateAnswerError(seconds) from None
        return Response(
            answer.model_dump_json(),
            answer.choose_status(),
            {"Cache-Control": "no-store"},
            "application/json",
        )

    async def _answer(self, endpoint: Endpoint, arguments: Sequence[Any]) -> ApiOutput:
        async with self._slow if endpoint.is_slow else nullcontext():
            return await endpoint.answer(*arguments)

    async def _read_input(self, model: type[ApiInput], request: Request) -> ApiInput:
        if request.method != "POST":
            return _validate(model, dict(request.query_params), strict=False)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            msg = f"the body must be JSON: send Content-Type: application/json, not {kind!r}"
            raise _NotJsonError(msg)
        body = await request.body()
        try:
            data = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            msg = f"the body is no JSON that can be read: {error}"
            raise InvalidInputError(msg) from None
        return _validate(model, data, strict=True)


def _validate(model: type[ApiInput], data: object, *, strict: bool) -> ApiInput:
    if not isinstance(data, dict):
        msg = f"the body must be a JSON object, not {format_value(data)}"
        raise InvalidInputError(msg)
    try:
        return model.model_validate(data, strict=strict)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        if place == "namespace":
            msg = f"the token says the namespace: name another one in the header {NAMESPACE_HEADER}"
            raise InvalidInputError(msg) from None
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            raise InvalidInputError(explain_unknown([place], model.model_fields)) from None
        raise InvalidInputError(explain_first_error(error)) from None


async def _write_events(events: AsyncIterator[tuple[str, ApiOutput]], seconds: float) -> Any:
    """Server-sent events: the name and the JSON of each; the last one is the answer or an error."""
    until = asyncio.get_running_loop().time() + seconds
    try:
        while True:
            left = until - asyncio.get_running_loop().time()
            name, data = await asyncio.wait_for(anext(events), max(0.0, left))
            yield f"event: {name}\ndata: {data.model_dump_json()}\n\n"
    except StopAsyncIteration:
        return
    except asyncio.TimeoutError:
        failed = answer_error(LateAnswerError(seconds))
    except Exception as error:
        failed = answer_error(error)
    finally:
        await events.aclose()  # type: ignore[attr-defined]
    yield b"event: error\ndata: " + bytes(failed.body) + b"\n\n"


def answer_error(error: Exception) -> JSONResponse:
    """The answer to a request that failed; an unexpected error is logged, and its text not sent."""
    if not isinstance(error, CrabPathError):
        _log.error("a request failed", exc_info=error)
        return _make_error(500, "CrabPathError", "the server failed: its log says why")
    kinds = type(error).__mro__
    status = next(_STATUSES[kind] for kind in kinds if kind in _STATUSES)
    name = next(kind.__name__ for kind in kinds if kind.__module__ == CrabPathError.__module__)
    return _make_error(status, name, describe_error(error), _HEADERS.get(status))


async def _answer_http_exception(_request: Request, error: Exception) -> JSONResponse:
    """Paths and methods that do not exist."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    kind, message = _HTTP_ERRORS.get(status, (InvalidInputError, str(error)))
    return _make_error(status, kind.__name__, message, getattr(error, "headers", None))


def _make_error(status: int, kind: str, message: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "message": message}}, status, headers)


class _Gate:
    """Refuses requests from elsewhere, applies the limits, and turns errors into answers."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self._app, self._access, self._limits = app, access, limits
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_in_time(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            started = True
            try:
                await asyncio.wait_for(send(message), self._limits.transfer_seconds)
            except asyncio.TimeoutError:
                raise _UnreadAnswerError from None

        self._running += 1
        try:
            self._require_capacity()
            self._require_local(scope)
            await self._app(scope, self._bound_body(scope, receive), send_in_time)
        except _UnreadAnswerError:
            _log.warning("a client that does not read was dropped")
        except ClientDisconnect:
            _log.debug("a client left before it had sent its body")
        except Exception as error:
            if started:
                raise
            await answer_error(error)(scope, receive, send)
        finally:
            self._running -= 1

    def _require_capacity(self) -> None:
        if self._running > self._limits.requests:
            msg = f"the server answers {self._limits.requests} requests already: try again"
            raise ServiceError(msg)

    def _require_local(self, scope: Scope) -> None:
        headers, client = Headers(scope=scope), scope.get("client")
        address = client[0] if client else None
        self._access.require_local(address, headers.get("host"), headers.get("origin"))

    def _bound_body(self, scope: Scope, receive: Receive) -> Receive:
        """The parts of a body, until there are too many bytes or they come too late.

        Raises:
            _TooLargeError: The body is larger than the limit.
        """
        most, length = self._limits.body_bytes, Headers(scope=scope).get("content-length", "0")
        seconds, loop = self._limits.transfer_seconds, asyncio.get_running_loop()
        msg = f"the body is larger than {most:,} bytes: send it in parts"
        if not length.isdecimal() or int(length) > most:
            raise _TooLargeError(msg)
        taken, until, is_whole = 0, 0.0, False

        async def receive_bounded() -> Message:
            nonlocal taken, until, is_whole
            if is_whole:  # this waits until the client leaves
                return await receive()
            until = until or loop.time() + seconds
            try:
                message = await asyncio.wait_for(receive(), max(0.0, until - loop.time()))
            except asyncio.TimeoutError:
                late = f"the body did not come within {seconds:g} s: send it again"
                raise _LateBodyError(late) from None
            taken += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if taken > most:
                raise _TooLargeError(msg)
            return message

        return receive_bounded
