"""Exceptions that a signal handler raised in the middle of something, such as a task's time limit.

They belong to the program that set the handler, and are no failure of what they interrupted.
"""

import signal


def raise_interruption(error: BaseException) -> None:
    """Raise an exception again if a signal handler raised it."""
    if _is_interruption(error):
        raise error


def _is_interruption(error: BaseException) -> bool:
    codes = {_find_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__ if codes else None
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _find_code(handler: object) -> object:
    handler = getattr(handler, "func", handler)  # of a partial function
    return getattr(handler, "__code__", None) or getattr(
        getattr(handler, "__call__", None),  # noqa: B004  an object that is called
        "__code__",
        None,
    )


def find_interruption(
    error: BaseException, known: BaseException | None, modules: tuple[str, ...] = ("",)
) -> BaseException | None:
    """The exception of a signal handler beneath an error that a library made of it.

    Args:
        error: The error.
        known: What the caller was handling before; it and what is beneath it do not count.
        modules: How names of modules begin whose exceptions the library raises; any other exception
            came from elsewhere. All, if not given.
    """
    seen: set[int] = {id(known), id(None)}
    left: list[BaseException | None] = [error]
    found = None
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if _is_interruption(one) or not type(one).__module__.startswith(modules):
            found = one  # the last is the first: libraries give their errors its traceback
        seen.add(id(one))
        left += [one.__context__, one.__cause__, getattr(one, "orig", None)]
    return found
