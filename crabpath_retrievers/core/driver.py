"""One implementation for sync and async: a generator yields operations, a driver performs them.

Retrieval is written once, as a generator that yields every blocking operation and receives its
result. :func:`run` performs operations in place; :func:`arun` keeps them off the event loop.

Asynchronous views: the methods of a class under the same names, awaited.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation:
    """A blocking operation.

    Attributes:
        blocking: Performs it in the calling thread.
        native: Performs it asynchronously; if None, a worker thread runs ``blocking``.
        slow: Whether it may take or wait minutes: then threads of their own run it.
    """

    blocking: Callable[[], Any]
    native: Callable[[], Awaitable[Any]] | None = None
    slow: bool = False


Operations = Generator[Operation, Any, T]
"""A computation that yields its blocking operations and returns a ``T``."""


def perform(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Operations[T]:
    """Ask the driver to call a blocking function; used with ``yield from``."""
    result: T = yield Operation(lambda: function(*args, **kwargs))
    return result


def perform_slow(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Operations[T]:
    """As :func:`perform`, of a function that may take or wait minutes, such as an ingest."""
    result: T = yield Operation(lambda: function(*args, **kwargs), slow=True)
    return result


def perform_sync_or_async(
    blocking: Callable[[], T], native: Callable[[], Awaitable[T]]
) -> Operations[T]:
    """Ask the driver to perform the form of an operation that suits it, sync or async."""
    result: T = yield Operation(blocking, native)
    return result


def wrap_blocking(
    steps: Operations[T], around: Callable[[Callable[[], Any]], Any]
) -> Operations[T]:
    """The same computation, whose operations without an asynchronous form ``around`` calls."""
    advance: Callable[[], Operation] = partial(next, steps)
    try:
        while True:
            operation = advance()
            if operation.native is None:
                operation = Operation(partial(around, operation.blocking), slow=operation.slow)
            try:
                advance = partial(steps.send, (yield operation))
            except Exception as error:  # the computation may handle it
                advance = partial(steps.throw, error)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        steps.close()


def run(steps: Operations[T]) -> T:
    """Drive a computation in the calling thread."""
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


async def arun(steps: Operations[T]) -> T:
    """Drive a computation without blocking the event loop.

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
    """Advance a computation to its next operation or to its end."""
    try:
        return advance()
    except StopIteration as stop:
        return _Done(stop.value)


_SLOW_THREADS = 16  # of each event loop
_slow_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor]
_slow_threads = WeakKeyDictionary()


def _find_slow_threads(loop: asyncio.AbstractEventLoop) -> ThreadPoolExecutor:
    """Threads for slow operations, which would leave none of the usual ones to queries."""
    if loop not in _slow_threads:
        _slow_threads[loop] = ThreadPoolExecutor(_SLOW_THREADS, "crabpath-slow")
    return _slow_threads[loop]


async def _run_in_thread(steps: Operations[T], operation: Operation) -> Operation | _Done:
    """Perform operations from this one up to the next one that has to be awaited."""
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
    pool = _find_slow_threads(loop) if operation.slow else None
    try:
        return await loop.run_in_executor(pool, copy_context().run, work)
    except asyncio.CancelledError:
        cancelled.set()
        raise


R = TypeVar("R")


class AsyncView(Generic[T]):
    """Methods of another object, off the event loop."""

    def __init__(self, blocking: T) -> None:
        """Wrap ``blocking``, the object with the synchronous methods."""
        self._blocking = blocking


def off_loop(
    method: Callable[Concatenate[T, P], R], *, slow: bool = False
) -> Callable[Concatenate[AsyncView[T], P], Coroutine[Any, Any, R]]:
    """The asynchronous form of a method, for the body of a view.

    It has the parameters, result, errors and docstring of ``method`` and runs it in a worker
    thread, as a ``slow`` operation where that is said::

        class AsyncMemoryGraph(AsyncView[MemoryGraph]):
            traverse = off_loop(MemoryGraph.traverse)
    """

    @wraps(method)
    async def call(self: AsyncView[T], /, *args: P.args, **options: P.kwargs) -> R:
        work = partial(method, self._blocking, *args, **options)
        return await arun(perform_slow(work) if slow else perform(work))

    return call
