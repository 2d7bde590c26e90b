"""Write-behind queue of turn records: several are written in one transaction after the answers.

Answers do not wait for the write lock of the database. Reads of turns, all changes, and closing
wait until the queue is empty; while none does, a record waits a moment for others. A killed process
loses at most the turns of its last moment, to which no feedback refers yet.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from crabpath_retrievers.core.calls import track_waiting
from crabpath_retrievers.core.changes import RecordTurn
from crabpath_retrievers.errors import (
    CrabPathError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

GATHERED_SECONDS = 0.02
"""How long a record waits for others that are written with it."""

_log = logging.getLogger(__name__)
_TRANSIENT_ERRORS = (StoreUnavailableError, StoreLockedError, StoreFullError, StoreReadOnlyError)
_MAX_WAITING = 256  # turn records in the queue before answers wait
_MAX_BATCH = 32  # records of one transaction
# The thread stays idle for a second, since starting one delays an answer more than waking one. It
# looks ten times whether the program is ending, because the program waits for it.
_IDLE_CHECKS, _IDLE_SECONDS = 10, 0.1
_TIMEOUT = "turn records are still being written: is the database answering?"


class TurnWriter:
    """A queue of turn records, with one thread that writes them; it ends after an idle second.

    While the database is unavailable, read-only or full, at most 256 records wait; the next record
    starts another attempt.
    """

    def __init__(self, write: Callable[[Sequence[RecordTurn]], None]) -> None:
        """Keep ``write``, which is called with a batch and writes it in one transaction."""
        self._write = write
        self._gathering = False
        self._readers = 0  # threads in settle()
        self._changed = threading.Condition()
        self._waiting: list[RecordTurn] = []
        self._thread: threading.Thread | None = None
        self._error: CrabPathError | None = None
        self._lost = 0
        self._writing = False
        self._closed = False

    def add(self, record: RecordTurn) -> None:
        """Add a record; waits only while the queue is full."""
        with track_waiting() as deadline, self._changed:
            while len(self._waiting) >= _MAX_WAITING and self._is_running():
                if not self._changed.wait(_get_remaining(deadline)):
                    break  # the oldest records are dropped
            self._enqueue([*self._waiting, record])
            if not self._gathering or len(self._waiting) >= _MAX_BATCH:
                self._wake_thread()

    def settle(self) -> None:
        """Wait until all records are written.

        Raises:
            StoreUnavailableError: Records cannot be written and stay in the queue; likewise
                :class:`StoreLockedError`, :class:`StoreFullError` and :class:`StoreReadOnlyError`.
        """
        if threading.current_thread() is self._thread:
            return
        with track_waiting() as deadline, self._changed:
            self._readers += 1
            try:
                if self._waiting:
                    self._wake_thread()
                while (self._waiting or self._writing) and self._is_running():
                    if not self._changed.wait(_get_remaining(deadline)):
                        raise StoreUnavailableError(_TIMEOUT)
            finally:
                self._readers -= 1
            if self._waiting and self._error is not None:
                raise self._error

    def close(self) -> None:
        """End the thread, unless it is writing; a further record starts a new one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._is_running() and not self._writing:
                self._changed.wait()

    def _is_running(self) -> bool:
        """Whether the thread lives; a forked process has a copy of the queue, but no thread."""
        return self._thread is not None and self._thread.is_alive()

    def _wake_thread(self) -> None:
        if self._is_running():
            self._changed.notify_all()
        else:
            self._writing = False
            self._thread = threading.Thread(target=self._write_batches, name="crabpath-turns")
            self._thread.start()

    def _enqueue(self, records: list[RecordTurn]) -> None:
        lost = len(records) - _MAX_WAITING
        if lost > 0:
            if not self._lost:  # one warning per outage, not one per turn
                _log.warning("from now on turn records are lost: %s", self._error)
            self._lost += lost
        self._waiting = records[-_MAX_WAITING:]

    def _write_batches(self) -> None:
        """Write batches until no record comes or the database fails; run in the thread.

        The next record starts the thread again.
        """
        while batch := self._take_batch():
            try:
                self._write(batch)
            except _TRANSIENT_ERRORS as error:
                self._pause(batch, error)
                return
            except Exception as error:  # readers would wait for ever if the thread died
                if len(batch) == 1:
                    _log.warning("a turn record could not be written: %s", error)
                elif not self._write_each(batch):
                    return
            self._report_lost()

    def _write_each(self, batch: Sequence[RecordTurn]) -> bool:
        """Write records one by one, so that an invalid one does not affect the others.

        Returns whether the database was available to the end.
        """
        for number, record in enumerate(batch):
            try:
                self._write([record])
            except _TRANSIENT_ERRORS as error:
                self._pause(batch[number:], error)
                return False
            except Exception as error:
                _log.warning("a turn record could not be written: %s", error)
        return True

    def _report_lost(self) -> None:
        with self._changed:
            lost, self._lost = self._lost, 0
        if lost:
            _log.warning("the database is back; %d turn records were lost", lost)

    def _pause(self, remaining: Sequence[RecordTurn], error: CrabPathError) -> None:
        """Put the ``remaining`` records back into the queue, and end the thread.

        ``error`` is kept for those who wait for the queue.
        """
        with self._changed:
            self._error = error
            self._enqueue([*remaining, *self._waiting])
            self._thread, self._writing = None, False
            self._changed.notify_all()

    def _take_batch(self) -> list[RecordTurn]:
        """Take the next records, waiting an idle second for one; if none comes, the thread ends."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            for _ in range(_IDLE_CHECKS):
                if self._waiting or self._closed or not threading.main_thread().is_alive():
                    break
                self._changed.wait(_IDLE_SECONDS)
            if self._waiting:
                self._gather()
            batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
            self._writing = bool(batch)
            if not batch:
                self._thread = None
            self._changed.notify_all()
            return batch

    def _gather(self) -> None:
        """Wait a moment for more records, unless a thread waits for the queue to be empty."""
        ends = monotonic() + GATHERED_SECONDS
        self._gathering = True
        while (
            len(self._waiting) < _MAX_BATCH
            and not (self._readers or self._closed)
            and (left := ends - monotonic()) > 0
        ):
            self._changed.wait(left)
        self._gathering = False


def _get_remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())
