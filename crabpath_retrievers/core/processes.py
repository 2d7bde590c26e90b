"""What a forked process finds: no thread of its parent, and connections that are not its own.

It neither uses nor releases what was open at the fork. Connections would mix two conversations,
embedded Chroma waits for its threads, also when it is freed, and SQLite counts locks that only the
parent holds, also for connections that are opened later.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from crabpath_retrievers.errors import ForkedError


class Owner(Protocol):
    """An object that has connections, files or threads."""

    def leave_to_parent(self) -> None:
        """Be unusable, in a forked process: quickly, and without waiting for a lock."""


_owners: WeakSet[Owner] = WeakSet()
_locks: WeakSet[threading.Lock] = WeakSet()
_inherited: set[tuple[int, int]] = set()  # device and inode


def register_owner(owner: Owner) -> None:
    """Call ``owner.leave_to_parent`` in every process that is forked while it exists."""
    _owners.add(owner)


def make_lock() -> threading.Lock:
    """A lock that a forked process finds free, whichever thread held it."""
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


def leave_place(path: Path) -> None:
    """Refuse a file or directory from now on, which was open at the fork."""
    with suppress(OSError):
        _inherited.add(_identify(path))


def require_own_place(path: Path) -> None:
    """Refuse a file or directory that was open when this process was forked.

    Raises:
        ForkedError: It was.
    """
    if _inherited and _identify(path) in _inherited:
        raise ForkedError


def _identify(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _leave_all() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  as logging does
    for owner in list(_owners):
        keep_for_ever((owner, dict(vars(owner))))
        owner.leave_to_parent()


call_in_child(_leave_all)
