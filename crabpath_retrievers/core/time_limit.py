"""A limit on the total time that one call waits for databases and servers.

A server that accepts connections but does not answer must not block a caller. A call waits in
several places, and the limit applies to their sum; time between them, such as a chat model, does
not count. Long operations (ingest, maintenance, migrations) have no limit.

Running a function with a timeout.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from time import monotonic
from typing import Any, TypeVar, cast

DEFAULT_TIME_LIMIT = 10.0
"""Default limit in seconds."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class _WaitBudget:
    """The remaining waiting time of one call.

    Attributes:
        remaining: Seconds that the call may still wait.
        deadline: End of the current wait on the monotonic clock; None while not waiting.
        is_over: Whether the call has ended; threads that it started go on without a limit.
    """

    remaining: float
    deadline: float | None = None
    is_over: bool = False


_CURRENT: ContextVar[_WaitBudget | None] = ContextVar("crabpath_wait_budget", default=None)


def _get_current() -> _WaitBudget | None:
    budget = _CURRENT.get()
    return None if budget is None or budget.is_over else budget


@contextmanager
def limit_waiting(seconds: float) -> Iterator[None]:
    """Limit the total waiting time inside to ``seconds``; an outer limit takes precedence."""
    if _get_current() is not None:
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
    """Count the time inside as waiting.

    Yields:
        The deadline on the clock of ``time.monotonic()``; None without a limit.
    """
    budget = _get_current()
    if budget is None or budget.deadline is not None:
        yield None if budget is None else budget.deadline
        return
    budget.deadline = deadline = monotonic() + budget.remaining
    try:
        yield deadline
    finally:
        budget.deadline = None
        budget.remaining = deadline - monotonic()


@contextmanager
def shorten_waiting(seconds: float) -> Iterator[None]:
    """Limit the waiting time inside to ``seconds``, or to less if the current limit is lower."""
    with track_waiting() as deadline:
        remaining = seconds if deadline is None else min(seconds, deadline - monotonic())
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


T = TypeVar("T")


def run_with_timeout(work: Callable[[], T], seconds: float) -> T:
    """The result of ``work``, run in a thread that is abandoned when it takes too long.

    The thread is a daemon, so that one that never ends does not keep the program from ending.

    Raises:
        TimeoutError: It took longer than ``seconds``.
    """
    future = _start(work)
    wait([future], seconds)
    if not future.done():
        raise make_timeout_error(seconds)
    return future.result()


async def arun_with_timeout(work: Callable[[], T], seconds: float | None = None) -> T:
    """As :func:`run_with_timeout`, without blocking the event loop; None waits without limit.

    The event loop's own threads are not used: they are few, and closing the loop waits for them.
    """
    future = _start(work)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
    except asyncio.TimeoutError:
        if seconds is None or future.done():  # raised by the work itself
            raise
        raise make_timeout_error(seconds) from None


def make_timeout_error(seconds: float) -> TimeoutError:
    """The error for a missing answer."""
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

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(worker,), daemon=True).start()
    return future
