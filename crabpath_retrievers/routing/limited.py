"""Waiting for something no longer than a given time."""

import contextvars
import threading
from collections.abc import Callable
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
