"""Waiting for something no longer than a given time."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")


def limited(work: Callable[[], T], seconds: float) -> T:
    """The result of ``work``, done by a thread that is left behind when it takes too long.

    The thread is a daemon: one that never ends does not keep the program from ending.

    Raises:
        TimeoutError: It took longer.
    """
    results: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def worker() -> None:
        try:
            results.put((work(), None))
        except BaseException as error:  # it is raised where it is waited for
            results.put((None, error))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(worker,), daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except Empty:
        msg = f"no answer within {seconds:g} s"
        raise TimeoutError(msg) from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


async def alimited(work: Callable[[], T], seconds: float | None = None) -> T:
    """As :func:`limited`, without blocking the event loop; without ``seconds`` it takes its time.

    The threads of the loop itself are few, and a loop waits for them before it ends.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def worker() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = work(), None
        except BaseException as error:  # it is raised where it is waited for
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, *outcome)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(worker,), daemon=True).start()
    try:
        return await asyncio.wait_for(future, seconds)
    except asyncio.TimeoutError:
        msg = f"no answer within {seconds:g} s"
        raise TimeoutError(msg) from None
