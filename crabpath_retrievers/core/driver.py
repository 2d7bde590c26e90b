"""One implementation for sync and async: a generator yields operations, a driver performs them.

Retrieval is written once, as a generator that yields every blocking operation and receives its
result. :func:`run` performs operations in place; :func:`arun` keeps them off the event loop.

Asynchronous views: the methods of a class under the same names, awaited.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
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
    result: T = yield Operation(partial(function, *args, **kwargs))
    return result


def perform_slow(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Operations[T]:
    """As :func:`perform`, of a function that may take or wait minutes, such as an ingest."""
    result: T = yield Operation(partial(function, *args, **kwargs), slow=True)
    return result


def perform_sync_or_async(
    blocking: Callable[[], T], native: Callable[[], Awaitable[T]]
) -> Operations[T]:
    """Ask the driver to perform the form of an operation that suits it, sync or async."""
    result: T = yield Operation(blocking, native)
    return result


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
    finally:
        steps.close()  # where a signal handler raised an exception between two operations


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


_AT_WORK = min(32, (os.cpu_count() or 1) + 4)  # threads of each event loop, as asyncio has
_ASIDE = 512  # threads beside them, which wait
_SLOW_THREADS = 16


class _Places:
    """Places of the threads of an event loop that work at the same time."""

    def __init__(self, free: int) -> None:
        # A semaphore of asyncio would keep the loop, and the loop its threads.
        self._free, self._waiting = free, deque[asyncio.Future[None]]()

    async def take(self) -> None:
        """Take a place, in the order of asking."""
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
        """Give a place to the one that waits longest."""
        while self._waiting:
            called = self._waiting.popleft()
            if not called.done():  # it was not cancelled
                called.set_result(None)
                return
        self._free += 1


class _Place:
    """The place that an operation has taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, places: _Places) -> None:
        self._loop, self._places = loop, places
        self._left = threading.Lock()

    def leave(self) -> None:
        """Leave it to the next operation; safe to repeat."""
        if self._left.acquire(blocking=False):
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._places.give)


@dataclass(frozen=True, slots=True)
class _Threads:
    """Threads of an event loop; slow operations have their own, and leave the others to queries."""

    usual: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_AT_WORK + _ASIDE, "crabpath")
    )
    slow: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_SLOW_THREADS, "crabpath-slow")
    )
    places: _Places = field(default_factory=lambda: _Places(_AT_WORK))


_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, _Threads] = WeakKeyDictionary()
_PLACE: ContextVar[_Place | None] = ContextVar("place", default=None)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.2  # seconds


def look_again(look: Callable[[], T], may_come: Callable[[], bool]) -> T:
    """Call ``look`` after growing pauses until it finds something or ``may_come`` says no.

    A thread that waits here keeps no other operation of its event loop from working.
    """
    pause = _FIRST_PAUSE
    while not (found := look()) and may_come():
        if (place := _PLACE.get()) is not None:
            place.leave()
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return found


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
