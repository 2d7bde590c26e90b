"""Background work, and what the system does to a process: forks and signals.

A forked process has neither threads nor connections of its own. It neither uses nor releases what
was open at the fork. Connections would mix two conversations. The engines inside of a process
cannot even be used anew: embedded Chroma waits for its threads, also when it is freed, and SQLite
counts locks that only the parent holds.

Exceptions that a signal handler raised in the middle of something, such as a task's time limit,
belong to the program that set the handler, and are no failure of what they interrupted.
"""

import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from typing import Protocol, TypeVar
from weakref import WeakSet

from crabpath_retrievers.errors import ForkedError, StoreError

_log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")


class Owner(Protocol):
    """An object that has connections, files or threads."""

    def leave_to_parent(self) -> None:
        """Become unusable in a forked process, quickly and without waiting for a lock."""


_owners: WeakSet[Owner] = WeakSet()
_locks: WeakSet[threading.Lock] = WeakSet()
_used: set[str] = set()
_left: set[str] = set()


def register_owner(owner: Owner) -> None:
    """Call ``owner.leave_to_parent`` in every process that is forked while it exists."""
    _owners.add(owner)


def make_lock() -> threading.Lock:
    """Make a lock that is free in a forked process, whichever thread held it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def call_in_child(function: Callable[[], None]) -> None:
    """Call a function in every process that this one forks from now on."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=function)


def keep_for_ever(thing: object) -> None:
    """Never free an object, nor what it refers to, not even at the end of the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def leave_engine(name: str) -> None:
    """Make this forked process refuse an engine, which was in use at the fork."""
    _left.add(name)


def use_engine(name: str) -> None:
    """Note that an engine is used, so that processes forked later refuse it."""
    require_engine(name)
    _used.add(name)


def require_engine(name: str) -> None:
    """Refuse an engine that was in use when this process was forked."""
    if name in _left:
        raise ForkedError


def compute_ahead(function: Callable[[T], R], items: Iterable[T], thread: str) -> Iterator[R]:
    """Yield what a function returns for each item; threads call it, one after the other.

    While one result is used, the next one is computed. ``items`` are read by the caller's thread.
    A process that is interrupted does not wait for the call that still runs.
    """

    def start(item: T) -> Future[R]:
        future: Future[R] = Future()

        def compute() -> None:
            try:
                future.set_result(function(item))
            except BaseException as error:
                future.set_exception(error)

        # A pool would be waited for at the end of the process.
        run = copy_context().run
        threading.Thread(target=run, args=(compute,), name=thread, daemon=True).start()
        return future

    coming: Future[R] | None = None
    for item in items:
        done = None if coming is None else (coming.result(),)
        coming = start(item)
        if done is not None:
            yield done[0]
    if coming is not None:
        yield coming.result()


class BackgroundWorker:
    """Runs at most one thread at a time, started with the first request and after every pause."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        """Keep ``work``, to run in a thread called ``name``; its errors are logged."""
        self._work, self._name = work, name
        self.leave_to_parent()
        register_owner(self)

    def leave_to_parent(self) -> None:
        """Start over without thread and requests, in a forked process."""
        self._condition = threading.Condition()
        self._requested = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Request one more run of the work, after the current one."""
        with self._condition:
            self._requested = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name)
                self._thread.start()

    def drain(self) -> None:
        """Wait until no work is left."""
        # The last reference to a memory may be dropped on this thread, which then closes it.
        if threading.current_thread() is self._thread:
            return
        with self._condition:
            while self._thread is not None:
                self._condition.wait()

    def _run(self) -> None:
        while self._take_request():
            try:
                self._work()
            except StoreError as error:  # the next request tries again
                _log.warning("%s could not finish: %s", self._name, error)
            except Exception:
                _log.warning("%s could not finish", self._name, exc_info=True)

    def _take_request(self) -> bool:
        with self._condition:
            requested, self._requested = self._requested, False
            if not requested:
                self._thread = None
                self._condition.notify_all()
            return requested


def _leave_all() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  as logging does
    _left.update(_used)
    for owner in list(_owners):
        keep_for_ever((owner, dict(vars(owner))))
        owner.leave_to_parent()


call_in_child(_leave_all)


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
    """Find the exception of a signal handler from which a library made an error; None if none.

    Args:
        known: The exception that the caller was handling before; it and its causes do not count.
            None if it was handling none.
        modules: Prefixes of the modules whose exceptions are the library's own; any other exception
            counts as found. By default all are its own.
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
