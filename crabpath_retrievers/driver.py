"""One loop for sync and async: a generator asks for operations, a driver performs them.

Retrieval is written once, as a generator that yields every blocking operation and is sent its
result. :func:`run` performs operations in place; :func:`arun` keeps them off the event loop.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

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


Steps = Generator[Operation, Any, T]
"""A computation that yields its blocking operations and returns a ``T``."""


def perform(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
    """Ask the driver to call a blocking function; used with ``yield from``."""
    result: T = yield Operation(lambda: function(*args, **kwargs))
    return result


def perform_either(blocking: Callable[[], T], native: Callable[[], Awaitable[T]]) -> Steps[T]:
    """Ask the driver to use whichever of two forms of one operation fits it."""
    result: T = yield Operation(blocking, native)
    return result


def run(steps: Steps[T]) -> T:
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


async def arun(steps: Steps[T]) -> T:
    """Drive a computation without blocking the event loop.

    One worker thread performs what blocks, and computes what lies in between, until something has
    to be awaited: every change between thread and loop costs more than most operations.
    """
    reached = _next(partial(next, steps))
    while not isinstance(reached, _Done):
        if reached.native is None:
            reached = await _in_thread(steps, reached)
            continue
        try:
            result = await reached.native()
        except BaseException as error:  # the computation may handle it
            reached = _next(partial(steps.throw, error))
        else:
            reached = _next(partial(steps.send, result))
    value: T = reached.value
    return value


class _Done(NamedTuple):
    """The result of a computation; a ``StopIteration`` cannot leave a thread."""

    value: Any


def _next(go_on: Callable[[], Operation]) -> Operation | _Done:
    try:
        return go_on()
    except StopIteration as stop:
        return _Done(stop.value)


async def _in_thread(steps: Steps[T], operation: Operation) -> Operation | _Done:
    """Whatever blocks, from this operation on, up to the next one that has to be awaited."""
    cancelled = threading.Event()

    def work() -> Operation | _Done:
        reached: Operation | _Done = operation
        while isinstance(reached, Operation) and reached.native is None:
            try:
                result = reached.blocking()
            except BaseException as error:  # the computation may handle it
                reached = _next(partial(steps.throw, error))
            else:
                if cancelled.is_set():  # nobody waits any more: it ends where it stands
                    steps.close()
                    return _Done(None)
                reached = _next(partial(steps.send, result))
        return reached

    try:
        return await asyncio.to_thread(work)
    except asyncio.CancelledError:
        cancelled.set()
        raise
