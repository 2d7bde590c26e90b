"""Asynchronous views: the methods of a class under the same names, awaited."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from crabpath_retrievers.core.driver import arun, perform

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class AsyncView(Generic[T]):
    """Methods of another object, off the event loop."""

    def __init__(self, blocking: T) -> None:
        """Wrap ``blocking``, the object with the synchronous methods."""
        self._blocking = blocking


def off_loop(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[AsyncView[T], P], Coroutine[Any, Any, R]]:
    """The asynchronous form of a method, for the body of a view.

    It has the parameters, result, errors and docstring of ``method`` and runs it in a worker
    thread::

        class AsyncMemoryGraph(AsyncView[MemoryGraph]):
            traverse = off_loop(MemoryGraph.traverse)
    """

    @wraps(method)
    async def call(self: AsyncView[T], /, *args: P.args, **options: P.kwargs) -> R:
        return await arun(perform(method, self._blocking, *args, **options))

    return call
