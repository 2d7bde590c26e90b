"""How long a call waits for databases and servers, all its waiting together.

A server that accepts and says nothing must not hold up whoever asks. A query waits in many places,
so its limit counts for all of them together; what lies in between, such as a chat model, does not
count. Work that may rightly take long (ingest, maintenance, migrations) has no limit.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from time import monotonic
from typing import Any, TypeVar, cast

TIME_LIMIT = 10.0
"""Seconds, where nothing else is set."""

F = TypeVar("F", bound=Callable[..., Any])


class _Patience:
    """What is left of the limit of one call.

    Attributes:
        left: Seconds that it may still wait.
        until: Moment at which the wait that goes on ends; None while it does not wait.
        over: Whether the call has ended; whatever it started goes on without its limit.
    """

    def __init__(self, seconds: float) -> None:
        self.left = seconds
        self.until: float | None = None
        self.over = False


_CURRENT: ContextVar[_Patience | None] = ContextVar("crabpath_patience", default=None)


def _current() -> _Patience | None:
    patience = _CURRENT.get()
    return None if patience is None or patience.over else patience


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Let all waiting inside take at most so many seconds; within a limit the outer one counts."""
    if _current() is not None:
        yield
        return
    patience = _Patience(seconds)
    token = _CURRENT.set(patience)
    try:
        yield
    finally:
        patience.over = True
        _CURRENT.reset(token)


@contextmanager
def waiting() -> Iterator[float | None]:
    """Around what waits.

    Yields:
        The moment of ``time.monotonic()`` until which it may; None without a limit.
    """
    patience = _current()
    if patience is None or patience.until is not None:
        yield None if patience is None else patience.until
        return
    patience.until = until = monotonic() + patience.left
    try:
        yield until
    finally:
        patience.until = None
        patience.left = until - monotonic()


@contextmanager
def briefly(seconds: float) -> Iterator[None]:
    """Let what is inside wait at most so many seconds, and no longer than it might anyway."""
    with waiting() as until:
        left = seconds if until is None else min(seconds, until - monotonic())
        token = _CURRENT.set(_Patience(left))
        try:
            yield
        finally:
            _CURRENT.reset(token)


def within_limit(method: F) -> F:
    """A method that waits no longer than ``settings.time_limit`` of its object."""

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        with limited(self.settings.time_limit):
            return method(self, *args, **options)

    return cast("F", call)
