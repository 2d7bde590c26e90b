"""Running a function with a timeout."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

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
