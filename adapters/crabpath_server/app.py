"""The application of Starlette: endpoints, errors, events and limits."""

import asyncio
import logging
import re
import signal
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import FrameType, UnionType
from typing import Any, get_args

try:
    import uvicorn
    from anyio import fail_after
    from pydantic import ValidationError
    from pydantic_core import from_json, to_json
    from starlette.applications import Starlette
    from starlette.convertors import Convertor, register_url_convertor
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import BaseRoute, Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    from crabpath_server import explain_missing

    raise explain_missing(error) from error

from crabpath_retrievers.config.base import explain_first_error, name_place
from crabpath_retrievers.core.calls import act_for
from crabpath_retrievers.core.query import explain_unknown
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import (
    InvalidInputError,
)
from crabpath_retrievers.memory.services import Readiness
from crabpath_server.access import Access, Grant, read_token
from crabpath_server.answers import Download, dump_answer
from crabpath_server.api_page import render_api
from crabpath_server.endpoints import (
    NAMESPACE_HEADER,
    ApiInput,
    Call,
    Endpoint,
    LateAnswerError,
)
from crabpath_server.journal import REQUEST_ID, Entry, begin_entry, get_entry
from crabpath_server.mcp import McpEndpoint
from crabpath_server.metrics import start_metrics, write_metrics
from crabpath_server.names import SourceNames
from crabpath_server.openapi import describe_api
from crabpath_server.page import make_page_routes
from crabpath_server.probe import Probe, announce_leaving, is_leaving
from crabpath_server.problems import (
    LateBodyError,
    NotJsonError,
    TooLargeError,
    UnreadBodyError,
    answer_ending,
    answer_error,
    answer_http_exception,
)
from crabpath_server.repeats import IDEMPOTENCY_KEY, Repeats
from crabpath_server.room import Room
from crabpath_server.table import ENDPOINTS

_log = logging.getLogger(__name__)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_WEIGHT = re.compile(r"\bq *= *([01](?:\.[0-9]*)?)")
_EVENTS = "text/event-stream"
_LEAST_ZIPPED, _ZIP_LEVEL = 4096, 4  # bytes of an answer; the fastest levels are half as good
_UNREAD_SECONDS = 60  # until the connection of a client that does not read is closed
_IDLE_SECONDS = 30  # until a connection is closed on which no whole request has come
_LEAVING_SECONDS = 3  # after SIGTERM, in which balancers find out and new requests are answered
_LAST_SECONDS = 1  # for requests on connections that are open when no new ones are accepted
_SHUTDOWN_SECONDS = 10  # that running requests have to finish when the server ends


class _UnreadAnswerError(Exception):
    """A client does not read its answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests: size, time and number.

    Attributes:
        body_bytes: Most bytes of a body; a larger one is refused with status 413.
        answer_seconds: Most seconds until an answer; then the status is 504.
        slow_seconds: The same for ingests, deletions, maintenance and snapshots.
        transfer_seconds: Most seconds until a body has come in (else 408), and until a client has
            read a part of an answer (else its connection is closed).
        requests: Most requests at the same time; further ones are refused with status 503. They
            count when their bodies have come in, and one token has half of them at most. Probes
            and metrics do not count.
        requests_per_minute: Most requests of one token; further ones are refused with status 429.
            A token may have another number; so it may below.
        feedbacks_per_hour: Most feedbacks, corrections, notes and undos of one token.
    """

    body_bytes: int = 8 << 20
    answer_seconds: float = 30.0
    slow_seconds: float = 3600.0
    transfer_seconds: float = 30.0
    requests: int = 256
    requests_per_minute: int = 6000
    feedbacks_per_hour: int = 3600


def create_app(
    memory: CrabPath,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    endpoints: Sequence[Endpoint] = ENDPOINTS,
    more: Sequence[BaseRoute] = (),
) -> Starlette:
    """Create the application that serves a memory, which stays open until the caller closes it.

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
        if endpoint.route is not None:
            by_path[endpoint.path][endpoint.method] = endpoint
    rates = limits.requests_per_minute, limits.feedbacks_per_hour
    room, probe = Room(limits.requests, limits.body_bytes, *rates), Probe(memory)
    names = SourceNames(memory)
    served = _Served(memory, access, limits, room, probe, names, Repeats())
    resources = [
        Route(path.replace(":path}", ":text}"), _Resource(methods, served))
        for path, methods in by_path.items()
    ]
    description = describe_api(endpoints)
    start_metrics()

    async def answer_metrics(request: Request) -> Response:
        grant = access.authorise(read_token(request.headers))
        get_entry().token = grant.token
        grant.require("read")
        accept = request.headers.get("accept", "")
        text, kind = write_metrics(accept)
        return Response(text, headers={"Content-Type": kind})

    @asynccontextmanager
    async def warm_up(_app: Starlette) -> AsyncIterator[None]:
        probe.warm_up()
        yield
        await asyncio.to_thread(probe.finish)

    mcp = McpEndpoint(memory, access, room, names, limits.answer_seconds, endpoints)
    app = Starlette(
        lifespan=warm_up,
        routes=[
            *resources,
            # One response each time: compression changes the headers of those it sends.
            Route("/openapi.json", lambda _: JSONResponse(description)),
            *make_page_routes(render_api(description)),
            *([] if access.issuer is None else access.issuer.make_routes()),
            Route("/metrics", answer_metrics),
            Route("/mcp", mcp, methods=["POST"]),
            *more,
        ],
        middleware=[
            Middleware(_Gate, access=access, limits=limits, names=names),
            Middleware(_ZipMiddleware, minimum_size=_LEAST_ZIPPED, compresslevel=_ZIP_LEVEL),
        ],
        exception_handlers={HTTPException: answer_http_exception},
    )
    app.router.redirect_slashes = False
    return app


def run_app(app: ASGIApp, listening: socket.socket) -> None:
    """Answer requests until SIGTERM or SIGINT.

    After SIGTERM ``/ready`` refuses, so that a balancer sends no more, and every answer ends its
    connection; after some seconds no connection is accepted, and what came whole is answered.

    Args:
        app: The application.
        listening: A socket that listens; it is closed.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; elsewhere unread answers stay in memory
        milliseconds = int(_UNREAD_SECONDS * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    config = uvicorn.Config(
        _answer_cancelled(app),
        http=_PatientHttp,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
        ws="none",
    )
    _PatientServer(config).run(sockets=[listening])


def _answer_cancelled(app: ASGIApp) -> ASGIApp:
    """Wrap an application: requests cancelled as the server ends are answered with 503."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_on(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, send_on)
        except asyncio.CancelledError:
            if not started:
                await answer_ending(scope)(scope, receive, send)

    return answer


class _PatientServer(uvicorn.Server):
    """A server that answers every accepted request before it ends."""

    _leaving_seconds = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end the server; at once where a person waits for it at a keyboard."""
        if sig == signal.SIGTERM:  # not passed on, so that the caller can close the memory
            self._leaving_seconds, self.should_exit = _LEAVING_SECONDS, True
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down: keep answering briefly, finish accepted requests, close."""
        _log.info("the server ends")
        announce_leaving(self.lifespan.state)
        await self._wait(self._leaving_seconds)
        waiting = [each for listening in sockets or () for each in _accept_waiting(listening)]
        for server in self.servers:
            server.close()  # would reset what waits to be accepted
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._connect, connection)
        await self._wait(_LAST_SECONDS, for_connections=True)
        for protocol in list(self.server_state.connections):
            if isinstance(protocol, _PatientHttp):
                protocol.give_up_body()
        await super().shutdown(sockets)

    async def _wait(self, seconds: float, *, for_connections: bool = False) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.force_exit:
            if for_connections and not self.server_state.connections:
                break
            await asyncio.sleep(0.05)

    def _connect(self) -> asyncio.Protocol:
        state = self.lifespan.state
        return _PatientHttp(self.config, self.server_state, app_state=state)


def _accept_waiting(listening: socket.socket) -> Iterator[socket.socket]:
    """Yield connections that the system has accepted and the server has not."""
    try:
        while True:
            connection, _ = listening.accept()
            connection.settimeout(0)
            yield connection
    except OSError:  # there are no more
        return


class _PatientHttp(H11Protocol):
    """HTTP that closes connections on which no request comes.

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

    def give_up_body(self) -> None:
        """Close the connection where the body of a request has not come whole."""
        if self.cycle is not None and self.cycle.more_body:
            self.transport.close()

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
        """Return the text itself."""
        return value

    to_string = convert


register_url_convertor("text", _AnyText())


@dataclass(frozen=True, slots=True)
class _Served:
    """Services that the resources of an application share."""

    memory: CrabPath
    access: Access
    limits: Limits
    room: Room
    probe: Probe
    names: SourceNames
    repeats: Repeats


class _Resource:
    """An application for the methods of one path."""

    def __init__(self, methods: dict[str, Endpoint], served: _Served) -> None:
        self._methods, self._served = methods, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, entry = Request(scope, receive), get_entry()
        entry.route = next(iter(self._methods.values())).path.replace(":path}", "}")
        endpoint = self._methods.get("GET" if request.method == "HEAD" else request.method)
        if endpoint is None:
            allowed = {*self._methods, *({"HEAD"} if "GET" in self._methods else ())}
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
        grant = endpoint.authorise(self._served.access, read_token(request.headers))
        entry.token = grant.token
        # Probes find a place at any time.
        room = self._served.room
        async with nullcontext() if endpoint.right is None else room.admit(request, grant):
            if endpoint.gives_feedback:
                room.count_feedback(grant)
            response = await self._respond(endpoint, request, grant)
            await response(scope, receive, send)

    async def _respond(self, endpoint: Endpoint, request: Request, grant: Grant) -> Response:
        served, limits = self._served, self._served.limits
        if "\0" in request.scope["path"] or "\0" in "".join(request.query_params.values()):
            msg = "a path or parameter has no NUL character: leave it out"
            raise InvalidInputError(msg)
        namespace = grant.choose_namespace(request.headers.get(NAMESPACE_HEADER))
        probe = None if is_leaving(request.scope) else served.probe
        names, entry = served.names, get_entry()
        entry.namespace = namespace
        call = Call(served.memory, grant, namespace, request.path_params, probe, names)
        model = endpoint.input
        given = None if model is None else await self._read_input(model, request)
        if given is not None:
            served.room.count_more(grant, given.requests - 1)
        entry.turn = getattr(given, "turn_id", None)
        places, options = endpoint.bind(call, given)
        seconds = limits.slow_seconds if endpoint.is_slow else limits.answer_seconds
        accepted = request.headers.get("accept", "")
        if endpoint.stream is not None and _is_preferred(_EVENTS, "application/json", accepted):
            stream = endpoint.stream(*places, **options)
            take = partial(_take_event, stream, time.monotonic() + seconds, seconds)
            first = await take()  # where it fails, the answer has a status of its own
            events = _write_events(first, stream, take, request.scope, names)
            return StreamingResponse(
                events, media_type=_EVENTS, headers={"Cache-Control": "no-store"}
            )
        turn = served.room.wait_for_slow(grant) if endpoint.is_slow else nullcontext()
        try:
            ask = partial(_answer, partial(endpoint.answer, *places, **options), turn)
            key = request.headers.get(IDEMPOTENCY_KEY) if endpoint.has_key else None
            if key is None:
                answering = ask()
            else:
                sender = (grant.token or "", namespace, endpoint.path)
                body = await request.body()
                answering = served.repeats.answer(sender, key, body, ask)
            with act_for(grant.token), fail_after(seconds):
                answer = await answering
        except TimeoutError:
            raise LateAnswerError(seconds) from None
        entry.turn = getattr(answer, "turn_id", None) or entry.turn
        if isinstance(answer, Download):
            return _send_file(answer)
        return Response(
            await _write_json(answer, names),
            503 if isinstance(answer, Readiness) and not answer.ready else 200,
            {"Cache-Control": "no-store"},
            "application/json",
        )

    async def _read_input(self, model: type[ApiInput], request: Request) -> ApiInput:
        if request.method != "POST":
            _require_whole_numbers(model, request.query_params)
            return _validate(model, dict(request.query_params), strict=False)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            msg = f"the body must be JSON: send Content-Type: application/json, not {kind!r}"
            raise NotJsonError(msg)
        body = await request.body()
        try:
            data = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            msg = f"the body is no JSON that can be read: {error}"
            raise InvalidInputError(msg) from None
        return _validate(model, data, strict=True)


def _read_parts(file: Any) -> Iterator[bytes]:
    with file:  # closed where the client has left, too
        yield from iter(partial(file.read, 1 << 16), b"")


def _send_file(answer: Download) -> StreamingResponse:
    saved = f'attachment; filename="{answer.name}"'
    headers = {"Cache-Control": "no-store", "Content-Disposition": saved}
    return StreamingResponse(_read_parts(answer.file), headers=headers, media_type=answer.kind)


async def _answer(ask: Callable[[], Awaitable[object]], turn: Any) -> object:
    async with turn:
        return await ask()


async def _write_json(data: object, names: SourceNames) -> bytes:
    await names.refresh()
    return to_json(names.show(dump_answer(data)), inf_nan_mode="null")


def _require_whole_numbers(model: type[ApiInput], given: Mapping[str, str]) -> None:
    """Refuse parameters such as 1.0, which the model would read as whole numbers."""
    for name, field in model.model_fields.items():
        takes_int = int in (field.annotation, *get_args(field.annotation))
        if takes_int and name in given and not _WHOLE.fullmatch(given[name]):
            msg = f"{name} must be a whole number, not {format_value(given[name])}"
            raise InvalidInputError(msg)


def _validate(model: type[ApiInput], data: object, *, strict: bool) -> ApiInput:
    if not isinstance(data, dict):
        msg = f"the body must be a JSON object, not {format_value(data)}"
        raise InvalidInputError(msg)
    try:
        return model.model_validate(data, strict=strict)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = name_place(first["loc"])
        if place == "namespace":
            msg = f"the token says the namespace: name another one in the header {NAMESPACE_HEADER}"
            raise InvalidInputError(msg) from None
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            raise InvalidInputError(explain_unknown([place], model.model_fields)) from None
        field = model.model_fields.get(str(first["loc"][0]) if first["loc"] else "")
        if field is not None and isinstance(field.annotation, UnionType) and field.is_required():
            # One of several types: the first error is about one of them.
            text = field.description or ""
            msg = f"{first['loc'][0]} must be {text[:1].lower()}{text[1:]}"
            raise InvalidInputError(msg) from None
        raise InvalidInputError(explain_first_error(error)) from None


def _is_preferred(one: str, other: str, accepted: str) -> bool:
    """Whether a header such as ``Accept`` asks for one kind, and not rather for another one."""
    weights = {"": 0.0}
    for part in accepted.lower().split(","):
        name, _, given = part.partition(";")
        weight = _WEIGHT.search(given)
        weights[name.strip()] = float(weight[1]) if weight else 1.0
    return weights.get(one, 0.0) > 0.0 and weights[one] >= weights.get(other, 0.0)


_Event = tuple[str, object]


async def _take_event(events: AsyncIterator[_Event], until: float, seconds: float) -> _Event:
    """Take the next event, at most until a time, ``seconds`` after the request."""
    try:
        return await asyncio.wait_for(anext(events), max(0.0, until - time.monotonic()))
    except asyncio.TimeoutError:
        raise LateAnswerError(seconds) from None


async def _write_events(
    first: _Event,
    events: AsyncIterator[_Event],
    take: Callable[[], Awaitable[_Event]],
    scope: Scope,
    names: SourceNames,
) -> AsyncIterator[bytes]:
    """Encode server-sent events, name and JSON of each; the last is the answer or an error.

    ``take`` takes those of ``events`` after the ``first``.
    """
    name, data = first
    try:
        while True:
            get_entry().turn = getattr(data, "turn_id", None)
            yield f"event: {name}\ndata: ".encode() + await _write_json(data, names) + b"\n\n"
            name, data = await take()
    except StopAsyncIteration:
        return
    except Exception as error:
        failed = answer_error(error, scope, names)
    finally:
        await events.aclose()  # type: ignore[attr-defined]
    get_entry().status = failed.status_code  # of the log and the metrics: the head has been sent
    yield b"event: error\ndata: " + bytes(failed.body) + b"\n\n"


class _ZipMiddleware(GZipMiddleware):
    """Compresses answers, unless a client weighs that lower than to have them as they are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = Headers(scope=scope).get("accept-encoding", "") if "headers" in scope else ""
        if accepted and not _is_preferred("gzip", "identity", accepted):
            others = [field for field in scope["headers"] if field[0] != b"accept-encoding"]
            scope = {**scope, "headers": others}
        await super().__call__(scope, receive, send)


class _Gate:
    """Refuses requests from elsewhere, applies the limits, and turns errors into answers."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, names: SourceNames) -> None:
        self._app, self._access, self._limits, self._names = app, access, limits, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = begin_entry(scope)
        try:
            await self._answer(scope, receive, send, entry)
        except asyncio.CancelledError:  # since the server ends
            entry.status = entry.status or 503
            raise
        finally:
            entry.finish()

    async def _answer(self, scope: Scope, receive: Receive, send: Send, entry: Entry) -> None:
        started = False

        async def send_in_time(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers[REQUEST_ID] = entry.id
                entry.status = message["status"]
                if is_leaving(scope):
                    headers["Connection"] = "close"
            started = True
            try:
                with fail_after(self._limits.transfer_seconds):
                    await send(message)
            except TimeoutError:
                raise _UnreadAnswerError from None

        try:
            self._require_local(scope)
            await self._access.prepare(read_token(Headers(scope=scope)))
            await self._app(scope, self._bound_body(scope, receive), send_in_time)
        except _UnreadAnswerError:
            _log.warning("a client that does not read was dropped")
        except ClientDisconnect:
            _log.debug("a client left before it had sent its body")
        except Exception as error:
            if started:
                raise
            await self._answer_error(error, scope)(scope, receive, send_in_time)

    def _answer_error(self, error: Exception, scope: Scope) -> JSONResponse:
        answer = answer_error(error, scope, self._names)
        if challenge := self._access.make_challenge(error):
            answer.headers["WWW-Authenticate"] = challenge
        return answer

    def _require_local(self, scope: Scope) -> None:
        headers, client = Headers(scope=scope), scope.get("client")
        address = client[0] if client else None
        self._access.require_local(address, headers.get("host"), headers.get("origin"))

    def _bound_body(self, scope: Scope, receive: Receive) -> Receive:
        """Wrap ``receive``: it raises an error once a body is too large or comes too late."""
        headers = Headers(scope=scope)
        most, length = self._limits.body_bytes, headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:
            msg = "a body has a Content-Length or a Transfer-Encoding: send one of them"
            raise UnreadBodyError(msg)
        seconds, loop = self._limits.transfer_seconds, asyncio.get_running_loop()
        msg = f"the body is larger than {most:,} bytes: send it in parts"
        if not length.isdecimal() or int(length) > most:
            raise TooLargeError(msg)
        taken, until, is_whole = 0, 0.0, False

        async def receive_bounded() -> Message:
            nonlocal taken, until, is_whole
            if is_whole:  # this waits until the client leaves
                return await receive()
            until = until or loop.time() + seconds
            try:
                with fail_after(max(0.0, until - loop.time())):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not come within {seconds:g} s: send it again"
                raise LateBodyError(late) from None
            taken += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if taken > most:
                raise TooLargeError(msg)
            return message

        return receive_bounded
