"""Waiting for something no longer than a given time."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def limited(work: Callable[[], T], seconds: float) -> T:
    """The result of ``work``, done by a thread that is left behind when it takes too long.

    The thread is a daemon: one that never ends does not keep the program from ending.

    Raises:
        TimeoutError: It took longer.
    """
    future = _begun(work)
    wait([future], seconds)
    if not future.done():
        raise late(seconds)
    return future.result()


async def alimited(work: Callable[[], T], seconds: float | None = None) -> T:
    """As :func:`limited`, without blocking the event loop; without ``seconds`` it takes its time.

    The threads of the loop itself are few, and a loop waits for them before it ends.
    """
    future = _begun(work)
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
    except asyncio.TimeoutError:
        if seconds is None or future.done():  # the work's own
            raise
        raise late(seconds) from None


def late(seconds: float) -> TimeoutError:
    """The error of whoever did not answer in time."""
    return TimeoutError(f"no answer within {seconds:g} s")


def _begun(work: Callable[[], T]) -> Future[T]:
    """What a daemon thread makes of ``work``, in the context of the caller."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # who waits no more cannot take it back

    def worker() -> None:
        try:
            result = work()
        except BaseException as error:  # it is raised where it is waited for
            future.set_exception(error)
        else:
            future.set_result(result)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(worker,), daemon=True).start()
    return future
