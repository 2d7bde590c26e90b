"""How a call goes: driven sync or async, within a time limit, seen in progress, spans and metrics.

Drivers: retrieval is written once, as a generator that yields every blocking operation and receives
its result. :func:`run` performs operations in place; :func:`arun` keeps them off the event loop.
Asynchronous views have the methods of a class under the same names, awaited.

Time limit: a server that accepts connections but does not answer must not block a caller. A call
waits for databases and servers in several places, and the limit applies to their sum; time between
them, such as a chat model, does not count. Long operations (ingest, maintenance, migrations) have
no limit.

Progress and logging under ``crabpath_retrievers``. INFO: opening, ingest, learning and maintenance,
with counts and milliseconds. DEBUG: every turn. WARNING: something that was requested and not done.

Token: what a server is asked to change is stored with the token of the request.

Spans and metrics go through the API of OpenTelemetry, which does nothing until an SDK is set up.
Names follow the semantic conventions for generative AI; our own begin with ``crabpath.``.
docs/how-to/trace.md lists all of them.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)
from weakref import WeakKeyDictionary, WeakSet

from opentelemetry.context import attach, detach
from opentelemetry.metrics import (
    CallbackOptions,
    Meter,
    MeterProvider,
    Observation,
    get_meter,
)
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Receipt
from crabpath_retrievers.core.query import QueryOptions
from crabpath_retrievers.core.records import Turn

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Operation:
    """A blocking operation.

    Without a ``native`` form, a worker thread runs the blocking one; a ``slow`` one, which may take
    or wait minutes, gets threads of its own.
    """

    blocking: Callable[[], Any]
    native: Callable[[], Awaitable[Any]] | None = None
    slow: bool = False


Operations = Generator[Operation, Any, T]
"""A computation that yields its blocking operations and returns a ``T``."""


def perform(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Operations[T]:
    """Ask the driver to call a blocking function with these arguments; used by ``yield from``."""
    result: T = yield Operation(partial(function, *args, **kwargs))
    return result


def perform_slow(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Operations[T]:
    """Ask the driver to call a function that may take minutes, such as an ingest."""
    result: T = yield Operation(partial(function, *args, **kwargs), slow=True)
    return result


def perform_sync_or_async(
    blocking: Callable[[], T], native: Callable[[], Awaitable[T]] | None
) -> Operations[T]:
    """Ask the driver to perform an operation: ``blocking`` in sync, ``native`` in async calls.

    Without ``native`` these, too, perform ``blocking``, in the thread of the other steps.
    """
    result: T = yield Operation(blocking, native)
    return result


def run(steps: Operations[T]) -> T:
    """Drive a computation in the calling thread; return its result."""
    try:
        operation = next(steps)
        while True:
            try:
                result = operation.blocking()
            except BaseException as error:  # the computation may handle it
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()  # where a signal handler raised an exception between two operations


async def arun(steps: Operations[T]) -> T:
    """Drive a computation without blocking the event loop; return its result.

    One worker thread performs blocking operations and the computation between them until an
    operation has to be awaited: a switch between thread and loop costs more than most operations.
    """
    state = _resume(partial(next, steps))
    while not isinstance(state, _Done):
        if state.native is None:
            state = await _run_in_thread(steps, state)
            continue
        try:
            result = await state.native()
        except BaseException as error:  # the computation may handle it
            state = _resume(partial(steps.throw, error))
        else:
            state = _resume(partial(steps.send, result))
    value: T = state.value
    return value


class _Done(NamedTuple):
    """The result of a computation; a ``StopIteration`` cannot leave a thread."""

    value: Any


def _resume(advance: Callable[[], Operation]) -> Operation | _Done:
    """Advance a computation by ``advance``; return its next operation, or its end."""
    try:
        return advance()
    except StopIteration as stop:
        return _Done(stop.value)


_AT_WORK = min(32, (os.cpu_count() or 1) + 4)  # threads of each event loop, as asyncio has
_ASIDE = 512  # threads beside them, which wait
_SLOW_THREADS = 16


class _Places:
    """Limits how many threads of an event loop work at the same time."""

    def __init__(self, free: int) -> None:
        # A semaphore of asyncio would keep the loop, and the loop its threads.
        self._free, self._waiting = free, deque[asyncio.Future[None]]()

    async def take(self) -> None:
        """Wait for a free place and take it; the first to ask gets the first."""
        if self._free:
            self._free -= 1
            return
        called = asyncio.get_running_loop().create_future()
        self._waiting.append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self.give()
            raise

    def give(self) -> None:
        """Give a free place to the operation that has waited longest."""
        while self._waiting:
            called = self._waiting.popleft()
            if not called.done():  # it was not cancelled
                called.set_result(None)
                return
        self._free += 1


class _Place:
    """The place that one operation has taken, until it leaves it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, places: _Places) -> None:
        self._loop, self._places = loop, places
        self._left = threading.Lock()

    def leave(self) -> None:
        """Give the place back, once; safe to repeat."""
        if self._left.acquire(blocking=False):
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._places.give)


class _Threads:
    """Threads of an event loop; slow operations have threads of their own."""

    def __init__(self) -> None:
        self.usual = ThreadPoolExecutor(_AT_WORK + _ASIDE, "crabpath")
        self.slow = ThreadPoolExecutor(_SLOW_THREADS, "crabpath-slow")
        self.places = _Places(_AT_WORK)


_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, _Threads] = WeakKeyDictionary()
_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.2  # seconds


def look_again(look: Callable[[], T], may_come: Callable[[], bool]) -> T:
    """Call ``look`` at once, and again after growing pauses, until it has a result.

    The pauses end when the result is true, or ``may_come()`` is false; the last result is returned.
    While the thread sleeps, its place among the event loop's working threads is free for other
    operations.
    """
    pause = _FIRST_PAUSE
    while not (found := look()) and may_come():
        if (place := _PLACE.get()) is not None:
            place.leave()
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return found


async def _run_in_thread(steps: Operations[T], operation: Operation) -> Operation | _Done:
    """Perform ``operation`` and those after it, up to the next one that has to be awaited."""
    cancelled = threading.Event()

    def work() -> Operation | _Done:
        state: Operation | _Done = operation
        while (
            isinstance(state, Operation) and state.native is None and state.slow == operation.slow
        ):
            try:
                result = state.blocking()
            except BaseException as error:  # the computation may handle it
                state = _resume(partial(steps.throw, error))
            else:
                if cancelled.is_set():  # the caller is gone: stop here
                    steps.close()
                    return _Done(None)
                state = _resume(partial(steps.send, result))
        return state

    loop = asyncio.get_running_loop()
    threads = _threads.get(loop) or _threads.setdefault(loop, _Threads())
    context = copy_context()
    if operation.slow:
        done = threads.slow.submit(context.run, work)
    else:
        await threads.places.take()
        place = _Place(loop, threads.places)
        context.run(_PLACE.set, place)
        done = threads.usual.submit(context.run, work)
        done.add_done_callback(lambda _: place.leave())
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        cancelled.set()
        raise


class AsyncView(Generic[T]):
    """Methods of another object, off the event loop."""

    def __init__(self, blocking: T) -> None:
        """Keep ``blocking``, the object with the synchronous methods."""
        self._blocking = blocking


def off_loop(
    method: Callable[Concatenate[T, P], R], *, slow: bool = False
) -> Callable[Concatenate[AsyncView[T], P], Coroutine[Any, Any, R]]:
    """Make the asynchronous form of a method, for the class body of a view.

    The form has the parameters, result, errors and docstring of ``method``, and runs the method in
    a worker thread: among those of long operations if ``slow``::

        class AsyncMemoryGraph(AsyncView[MemoryGraph]):
            traverse = off_loop(MemoryGraph.traverse)
    """

    @wraps(method)
    async def call(self: AsyncView[T], /, *args: P.args, **options: P.kwargs) -> R:
        work = partial(method, self._blocking, *args, **options)
        return await arun(perform_slow(work) if slow else perform(work))

    return call


DEFAULT_TIME_LIMIT = 10.0
"""Default limit in seconds."""


@dataclass(slots=True)
class _WaitBudget:
    """How long one call may still wait for locks and servers, in seconds.

    The deadline of the current wait is on the monotonic clock, None while not waiting. Once the
    call ``is_over``, threads that it started go on without a limit.
    """

    remaining: float
    deadline: float | None = None
    is_over: bool = False


_CURRENT: ContextVar[_WaitBudget | None] = ContextVar("crabpath_wait_budget", default=None)


@contextmanager
def limit_waiting(seconds: float) -> Iterator[None]:
    """Limit the total waiting time in a block to ``seconds``; an outer limit takes precedence."""
    outer = _CURRENT.get()
    if outer is not None and not outer.is_over:
        yield
        return
    budget = _WaitBudget(seconds)
    _CURRENT.set(budget)
    try:
        yield
    finally:
        # Not reset: an abandoned coroutine is closed in another context, where that would fail.
        budget.is_over = True


@contextmanager
def track_waiting() -> Iterator[float | None]:
    """Count the time in a block as waiting.

    Yields:
        The deadline on the clock of ``time.monotonic()``; None without a limit.
    """
    budget = _CURRENT.get()
    if budget is None or budget.is_over:
        yield None
        return
    if budget.deadline is not None:
        yield budget.deadline
        return
    budget.deadline = deadline = time.monotonic() + budget.remaining
    try:
        yield deadline
    finally:
        budget.deadline = None
        budget.remaining = deadline - time.monotonic()


@contextmanager
def shorten_waiting(seconds: float) -> Iterator[None]:
    """Limit the waiting time inside to ``seconds``, or to less if the current limit is lower."""
    with track_waiting() as deadline:
        remaining = seconds if deadline is None else min(seconds, deadline - time.monotonic())
        token = _CURRENT.set(_WaitBudget(remaining))
        try:
            yield
        finally:
            _CURRENT.reset(token)


def apply_time_limit(method: F) -> F:
    """Limit the waiting time of a method to ``settings.time_limit`` of its object."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        with limit_waiting(self.settings.time_limit):
            return method(self, *args, **options)

    return cast("F", call)


def run_with_timeout(work: Callable[[], T], seconds: float) -> T:
    """Return the result of ``work``, run in a thread that is abandoned on a timeout.

    The thread is a daemon: even if it never ends, the program can.
    """
    future = _start(work)
    wait([future], seconds)
    if not future.done():
        raise make_timeout_error(seconds)
    return future.result()


async def arun_with_timeout(work: Callable[[], T], seconds: float | None = None) -> T:
    """Return the result of ``work``, run in a thread, without blocking the event loop.

    The thread is abandoned after ``seconds``, see :func:`run_with_timeout`; None waits without
    limit. The event loop's own threads are not used: they are few, and closing the loop waits for
    them.
    """
    future = _start(work)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
    except asyncio.TimeoutError:
        if seconds is None or future.done():  # raised by the work itself
            raise
        raise make_timeout_error(seconds) from None


def make_timeout_error(seconds: float) -> TimeoutError:
    """Make the error for an answer that did not come within some seconds."""
    return TimeoutError(f"no answer within {seconds:g} s")


def _start(work: Callable[[], T]) -> Future[T]:
    """Run ``work`` in a daemon thread, with the context variables of the caller."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a cancelled wait must not cancel the work

    def worker() -> None:
        try:
            result = work()
        except BaseException as error:  # raised again where the result is read
            future.set_exception(error)
        else:
            future.set_result(result)

    context = copy_context()
    threading.Thread(target=context.run, args=(worker,), daemon=True).start()
    return future


_TOKEN: ContextVar[str | None] = ContextVar("crabpath_token", default=None)


@contextmanager
def act_for(token: str | None) -> Iterator[None]:
    """Store the id of a token with all that is changed inside, None for nobody's."""
    outer = _TOKEN.set(token)
    try:
        yield
    finally:
        _TOKEN.reset(outer)


def find_token() -> str | None:
    """Find the id of the token for which the caller acts; None without one."""
    return _TOKEN.get()


_QUIET = 2.0  # seconds before progress is shown
_PAUSE = 10.0  # seconds between lines that stay


@contextmanager
def bar(
    total: int, *, description: str = "indexing", piped: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show how much is done, the rate and the time left, such as ``indexing 16 of 638, 23/s``.

    A terminal shows one line that changes, and is erased at the end; quick work shows nothing.
    Elsewhere, lines at least ten seconds apart are written to standard error if ``piped``,
    otherwise nothing.

    Yields:
        A function to call with the number of units just done.
    """
    live = sys.stderr.isatty()
    begun, due = time.monotonic(), _QUIET
    done = width = 0

    def advance(units: int) -> None:
        nonlocal done, due, width
        done += units
        seconds = time.monotonic() - begun
        if seconds < due or not (live or piped):
            return
        line = f"{description} {_describe_progress(done, total, seconds)}"
        width, due = max(width, len(line)), seconds + (0.0 if live else _PAUSE)
        sys.stderr.write(f"\r{line.ljust(width)}" if live else f"{line}\n")
        sys.stderr.flush()

    try:
        yield advance
    finally:
        if live and width:
            sys.stderr.write(f"\r{' ' * width}\r")
            sys.stderr.flush()


def _describe_progress(done: int, total: int, seconds: float) -> str:
    rate = done / max(seconds, 1e-9)
    left = timedelta(seconds=round((total - done) / rate)) if rate else None
    return f"{done:,} of {total:,}, {rate:.3g}/s" + (f", {left} left" if left else "")


# One line per lock, ten lines per document, and every flaw of a file that is read all the same.
_NOISY = {
    "filelock": logging.INFO,
    "markdown_it": logging.INFO,
    "bs4": logging.ERROR,
    "pypdf": logging.ERROR,
}


def elapsed_ms(start: float) -> float:
    """Milliseconds since ``start`` on the clock of :func:`time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def quiet_foreign_loggers() -> None:
    """Silence the messages of noisy libraries, unless the application has set a level."""
    for name, level in _NOISY.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable: ``true``, ``span_only`` or ``span_and_event`` also records contents."""

_SCOPE = "crabpath_retrievers"
_CAPTURED = frozenset({"true", "span_only", "span_and_event"})
_BUCKET_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PATIENCE = 1.0  # seconds that one reading of the gauge may wait for a database

_log = logging.getLogger(__name__)
_tracer = get_tracer(_SCOPE)


class _Embedder(Protocol):
    @property
    def model(self) -> str:
        """Name of the model."""


class ObservedMemory(Protocol):
    """Attributes of a memory in spans and metrics."""

    @property
    def data_source(self) -> str:
        """URL of its database, without password."""

    @property
    def embedder(self) -> _Embedder:
        """Embedder of the memory."""

    @property
    def settings(self) -> Any:
        """Settings of the memory, with the time limit."""

    @property
    def is_open(self) -> bool:
        """Whether the memory has not been closed."""

    def count_waiting(self) -> int:
        """Count the feedback that waits to be learned from."""

    def measure_lag(self) -> float:
        """Measure the seconds for which the oldest of it has waited; 0 if none waits."""


# Spans.


@contextmanager
def trace_operation(operation: str, data_source: str) -> Iterator[Span]:
    """Open a span for an operation on a memory; if the block fails, its error is recorded.

    ``data_source`` is the URL of the memory without password.

    Yields:
        The span, which only records if its ``is_recording()`` is true.
    """
    span = _tracer.start_span(f"{operation} {data_source}", kind=SpanKind.CLIENT)
    if span.is_recording():
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.provider.name", "crabpath")
    token = attach(set_span_in_context(span))
    try:
        yield span
    except GeneratorExit:  # an abandoned coroutine is closed in another context
        raise
    except BaseException as error:
        detach(token)
        if span.is_recording():
            _set_error(span, error)
        raise
    else:
        detach(token)
    finally:
        span.end()


def _set_error(span: Span, error: BaseException) -> None:
    """Record the class of an error; its message, which may quote contents, only where captured."""
    span.set_attribute("error.type", type(error).__qualname__)
    if captures_content():
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.record_exception(error)
    else:
        span.set_status(Status(StatusCode.ERROR))


def captures_content() -> bool:
    """Whether spans may hold questions, ids of documents and messages of errors."""
    return os.environ.get(CAPTURE_CONTENT, "").strip().lower() in _CAPTURED


@contextmanager
def trace_retrieval(memory: ObservedMemory, text: str, options: QueryOptions) -> Iterator[Span]:
    """Open a span for the query ``text`` with its options, and count and time it in the metrics.

    Its waiting time is limited to that of the settings.

    Yields:
        The span, to which :func:`describe_turn` adds the result.
    """
    begun, failed = time.perf_counter(), dict[str, AttributeValue]()
    limited = limit_waiting(memory.settings.time_limit)
    with limited, trace_operation("retrieval", memory.data_source) as span:
        try:
            if span.is_recording():
                _describe_query(span, memory, text, options)
            yield span
        except BaseException as error:
            failed["error.type"] = type(error).__qualname__
            raise
        finally:  # while the span is current, so that exemplars name it
            seconds = time.perf_counter() - begun
            for instruments in _instruments:
                instruments.queries.add(1, failed)
                instruments.duration.record(seconds, failed)


def _describe_query(span: Span, memory: ObservedMemory, text: str, options: QueryOptions) -> None:
    span.set_attribute("gen_ai.data_source.id", memory.data_source)
    span.set_attribute("gen_ai.request.model", memory.embedder.model)
    k = options.get("k", 4)
    if isinstance(k, int):  # else the query is refused
        span.set_attribute("gen_ai.retrieval.top_k", k)
    namespace = options.get("namespace", DEFAULT_NAMESPACE)
    if isinstance(namespace, str):  # else the query is refused, too
        span.set_attribute("crabpath.namespace", namespace)
    if captures_content():
        span.set_attribute("gen_ai.retrieval.query.text", str(text))


def describe_turn(span: Span, turn: Turn) -> None:
    """Add the result of a query to its span, if the span records."""
    if not span.is_recording():
        return
    # Behind the check, since reading the steps builds them.
    habitual = [[c.target for c in s.candidates if c.tier == "habitual"] for s in turn.steps]
    declined = [
        target
        for step, targets in zip(turn.steps, habitual, strict=True)
        for target in targets
        if target not in step.chosen
    ]
    span.set_attributes(
        {
            "crabpath.turn": turn.id,
            "crabpath.namespace": turn.namespace,
            "crabpath.returned": len(turn.returned),
            "crabpath.hops": max((step.hop + 1 for step in turn.steps), default=0),
            "crabpath.offered": sum(map(len, habitual)),
            "crabpath.declined": len(declined),
        }
    )
    if captures_content():
        documents = [{"id": item.node, "score": item.probability} for item in turn.returned]
        span.set_attribute("gen_ai.retrieval.documents", json.dumps(documents))


def trace_memory(
    operation: str, describe: Callable[[Any], Mapping[str, AttributeValue]] = lambda _: {}
) -> Callable[[F], F]:
    """Trace a method of a component of a memory, as ``operation``.

    ``describe`` makes attributes of the span from the result of the method.
    """

    def decorate(method: F) -> F:
        usual = (method.__kwdefaults__ or {}).get("namespace")

        @wraps(method)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            source = self._all_services.data_source
            with trace_operation(operation, source) as span:
                result = method(self, *args, **options)
                if span.is_recording():
                    describe_memory(span, source, options.get("namespace", usual), describe(result))
                return result

        return cast("F", call)

    return decorate


def describe_memory(
    span: Span, data_source: str, namespace: object, more: Mapping[str, AttributeValue]
) -> None:
    """Add attributes to the span of an operation on a memory, if the span records."""
    if span.is_recording():
        span.set_attribute("gen_ai.memory.store.id", data_source)
        if isinstance(namespace, str):
            span.set_attribute("crabpath.namespace", namespace)
        span.set_attributes(more)


def name_record(record: str) -> Mapping[str, AttributeValue]:
    """Return attributes that name the one record of an operation."""
    return {"gen_ai.memory.record.id": record, "gen_ai.memory.record.count": 1}


def describe_receipt(receipt: Receipt) -> Mapping[str, AttributeValue]:
    """Return attributes of feedback that was recorded or undone."""
    return {**name_record(receipt.feedback_id), "crabpath.feedback.status": receipt.status}


def count_records(count: int) -> Mapping[str, AttributeValue]:
    """Return attributes that count the records of an operation."""
    return {"gen_ai.memory.record.count": count}


# Metrics.


class _Instruments:
    """The instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        meter.create_observable_gauge(
            "crabpath.waiting",
            [_observe_waiting],
            unit="{feedback}",
            description="Feedback of the open memories that waits to be learned from",
        )
        meter.create_observable_gauge(
            "crabpath.learning.lag",
            [_observe_lag],
            unit="s",
            description="Age of the oldest feedback that waits to be learned from",
        )
        self.embedding = meter.create_histogram(
            "crabpath.embedding.duration",
            "s",
            "Duration of calls of the embedder",
            explicit_bucket_boundaries_advisory=_BUCKET_SECONDS,
        )
        self.ingested = meter.create_counter(
            "crabpath.ingested", "{chunk}", "Chunks that ingests have added, updated or removed"
        )
        self.queries = meter.create_counter(
            "crabpath.queries", "{query}", "Queries, failed ones too"
        )
        self.duration = meter.create_histogram(
            "crabpath.query.duration",
            "s",
            "Duration of queries",
            explicit_bucket_boundaries_advisory=_BUCKET_SECONDS,
        )
        self.feedback = meter.create_counter(
            "crabpath.feedback", "{feedback}", "Recorded feedback by status"
        )
        self.learned = meter.create_counter(
            "crabpath.learned", "{feedback}", "Feedback that was learned from"
        )
        self.lift = meter.create_counter(  # a histogram records no negative value
            "crabpath.lift.feedback",
            "{feedback}",
            "Feedback judged without regard to what was shown, by whether learning gained",
        )


def _observe_waiting(_options: CallbackOptions) -> Iterable[Observation]:
    """Observe the feedback waiting in all open memories; unreachable databases are left out."""
    counts = _ask_memories(lambda memory: memory.count_waiting())
    return [Observation(sum(counts))] if counts else []


def _observe_lag(_options: CallbackOptions) -> Iterable[Observation]:
    """Observe how long the oldest feedback has waited in all open memories, as above."""
    lags = _ask_memories(lambda memory: memory.measure_lag())
    return [Observation(max(lags))] if lags else []


def _ask_memories(measure: Callable[[ObservedMemory], float]) -> list[float]:
    """Measure each database of the open memories once; nothing if one does not answer."""
    found: dict[str, float] = {}
    try:
        with shorten_waiting(_PATIENCE):
            for memory in tuple(_memories):
                if memory.is_open and memory.data_source not in found:
                    found[memory.data_source] = measure(memory)
    except Exception:
        _log.debug("waiting feedback cannot be counted", exc_info=True)
        return []
    return list(found.values())


_memories: WeakSet[Any] = WeakSet()
_instruments = [_Instruments(get_meter(_SCOPE))]


def observe_memory(memory: ObservedMemory) -> None:
    """Count the waiting feedback of a memory in the metrics, until it is closed."""
    _memories.add(memory)


@contextmanager
def time_embedding(kind: Literal["query", "documents"]) -> Iterator[None]:
    """Time one call of an embedder in the metrics."""
    begun, labels = time.perf_counter(), {"crabpath.embedding.kind": str(kind)}
    try:
        yield
    except BaseException as error:
        labels["error.type"] = type(error).__qualname__
        raise
    finally:
        for instruments in _instruments:
            instruments.embedding.record(time.perf_counter() - begun, labels)


def count_ingest(added: int, updated: int, removed: int) -> None:
    """Count the chunks that an ingest has changed."""
    changes = {"added": added, "updated": updated, "removed": removed}
    for change, count in changes.items():
        for instruments in _instruments:
            instruments.ingested.add(count, {"crabpath.ingest.change": change})


def count_receipt(status: str) -> None:
    """Count feedback that was recorded."""
    for instruments in _instruments:
        instruments.feedback.add(1, {"crabpath.feedback.status": status})


def count_lesson(gained: float | None = None) -> None:
    """Count feedback that was learned from."""
    for instruments in _instruments:
        instruments.learned.add(1)
        if gained is not None:
            result = "won" if gained > 0 else "lost" if gained < 0 else "equal"
            instruments.lift.add(1, {"crabpath.lift.result": result})


def report_metrics(provider: MeterProvider) -> None:
    """Report metrics from now on to a provider besides that of the process."""
    _instruments.append(_Instruments(provider.get_meter(_SCOPE)))
