"""One loop for sync and async: a generator asks for operations, a driver performs them.

Retrieval is written once, as a generator that yields every blocking operation and is sent its
result. :func:`run` performs operations in place; :func:`arun` keeps them off the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
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
    """Drive a computation without blocking the event loop."""
    try:
        operation = next(steps)
        while True:
            try:
                if operation.native is not None:
                    result = await operation.native()
                else:
                    result = await asyncio.to_thread(operation.blocking)
            except BaseException as error:  # the computation may handle it
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        value: T = stop.value
        return value
