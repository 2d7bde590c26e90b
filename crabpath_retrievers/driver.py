"""One loop for sync and async: a generator asks for operations, a driver performs them.

Retrieval is written once, as a generator that yields every blocking operation and is sent its
result. :func:`run` performs operations in place; :func:`arun` keeps them off the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that blocks.

    Attributes:
        blocking: Performs it in the calling thread.
        native: Performs it asynchronously; without one a worker thread runs ``blocking``.
    """

    blocking: Callable[[], Any]
    native: Callable[[], Awaitable[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """An operation that runs beside what follows; the driver answers with a handle.

    Attributes:
        blocking: Performs it, in a worker thread.
    """

    blocking: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Finish:
    """The result of an operation that was begun; the driver waits for it."""

    handle: "Future[Any]"


Steps = Generator[Operation | Begin | Finish, Any, T]
"""A computation that yields its blocking operations and returns a ``T``."""


def perform(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
    """Ask the driver to call a blocking function; used with ``yield from``."""
    result: T = yield Operation(lambda: function(*args, **kwargs))
    return result


def perform_either(blocking: Callable[[], T], native: Callable[[], Awaitable[T]]) -> Steps[T]:
    """Ask the driver to use whichever of two forms of one operation fits it."""
    result: T = yield Operation(blocking, native)
    return result


def begin(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Steps["Future[T]"]:
    """Ask the driver to start a blocking function beside what follows; see :func:`finish`."""
    handle: Future[T] = yield Begin(lambda: function(*args, **kwargs))
    return handle


def finish(handle: "Future[T]") -> Steps[T]:
    """Ask the driver to wait for what was begun."""
    result: T = yield Finish(handle)
    return result


def run(steps: Steps[T]) -> T:
    """Drive a computation in the calling thread."""
    try:
        operation = next(steps)
        while True:
            try:
                result = _answer(operation)
            except BaseException as error:  # the computation may handle it
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


async def arun(steps: Steps[T]) -> T:
    """Drive a computation without blocking the event loop."""
    try:
        operation = next(steps)
        while True:
            try:
                result = await _aanswer(operation)
            except BaseException as error:  # the computation may handle it
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value


_BESIDE = ThreadPoolExecutor(max_workers=8, thread_name_prefix="crabpath")


def _answer(operation: Operation | Begin | Finish) -> Any:
    if isinstance(operation, Begin):
        return _BESIDE.submit(operation.blocking)
    if isinstance(operation, Finish):
        return operation.handle.result()
    return operation.blocking()


async def _aanswer(operation: Operation | Begin | Finish) -> Any:
    if isinstance(operation, Begin):
        return _BESIDE.submit(operation.blocking)
    if isinstance(operation, Finish):
        return await asyncio.wrap_future(operation.handle)
    if operation.native is not None:
        return await operation.native()
    return await asyncio.to_thread(operation.blocking)
