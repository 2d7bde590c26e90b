"""Turn records are written behind the answers, several in one transaction.

An answer must not wait for the one writer that a database has. Whoever reads turns, or changes
anything, waits for what was handed over before; so does closing. A process that is killed loses at
most the turns of its last milliseconds, which nobody has acted on.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from crabpath_retrievers.changes import RecordTurn
from crabpath_retrievers.errors import (
    CrabPathError,
    StoreFullError,
    StoreLockedError,
    StoreUnavailableError,
)
from crabpath_retrievers.time_limit import waiting

_log = logging.getLogger(__name__)
_PASSING = (StoreUnavailableError, StoreLockedError, StoreFullError)
_MOST = 256  # turns that may wait before answers do
_BEHIND = "turn records are still being written: is the database answering?"


class TurnWriter:
    """A queue of turn records with one thread that empties it.

    While the database is away, or its disk full, records wait, 256 at most, and are tried again
    with the next one.
    """

    def __init__(self, write: Callable[[Sequence[RecordTurn]], None]) -> None:
        """Hand batches to ``write``, which puts each into one transaction."""
        self._write = write
        self._changed = threading.Condition()
        self._waiting: list[RecordTurn] = []
        self._thread: threading.Thread | None = None
        self._away: CrabPathError | None = None
        self._lost = 0

    def put(self, record: RecordTurn) -> None:
        """Hand over a record; waits only while the writer is behind by too many."""
        with waiting() as until, self._changed:
            while len(self._waiting) >= _MOST and self._thread is not None:
                if not self._changed.wait(_left(until)):
                    break  # the oldest are given up
            self._keep([*self._waiting, record])
            self._start()

    def settle(self) -> None:
        """Wait until everything that was handed over is written.

        Raises:
            StoreUnavailableError: They still cannot be written, and go on waiting; so with
                :class:`StoreLockedError` and :class:`StoreFullError`.
        """
        if threading.current_thread() is self._thread:
            return
        with waiting() as until, self._changed:
            if self._waiting:
                self._start()
            while self._thread is not None:
                if not self._changed.wait(_left(until)):
                    raise StoreUnavailableError(_BEHIND)
            if self._waiting and self._away is not None:
                raise self._away

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="crabpath-turns")
            self._thread.start()

    def _keep(self, records: list[RecordTurn]) -> None:
        lost = len(records) - _MOST
        if lost > 0:
            if not self._lost:  # one line for an outage, not one for every turn
                _log.warning("from now on turn records are lost: %s", self._away)
            self._lost += lost
        self._waiting = records[-_MOST:]

    def _work(self) -> None:
        """Write until nothing waits, or the database is away; the next record starts again."""
        while batch := self._next():
            try:
                self._write(batch)
            except _PASSING as error:
                self._give_up(batch, error)
                return
            except Exception as error:  # if the thread died here, readers would wait for ever
                if len(batch) == 1:
                    _log.warning("a turn record could not be written: %s", error)
                elif not self._write_each(batch):
                    return
            self._count_lost()

    def _write_each(self, batch: Sequence[RecordTurn]) -> bool:
        """Write records one by one, so that one which cannot be written loses only itself.

        Returns:
            Whether the database was there to the end.
        """
        for number, record in enumerate(batch):
            try:
                self._write([record])
            except _PASSING as error:
                self._give_up(batch[number:], error)
                return False
            except Exception as error:
                _log.warning("a turn record could not be written: %s", error)
        return True

    def _count_lost(self) -> None:
        with self._changed:
            lost, self._lost = self._lost, 0
        if lost:
            _log.warning("the database is back; %d turn records were lost", lost)

    def _give_up(self, left: Sequence[RecordTurn], error: CrabPathError) -> None:
        """Keep records until the next one comes, and end."""
        with self._changed:
            self._away = error
            self._keep([*left, *self._waiting])
            self._thread = None
            self._changed.notify_all()

    def _next(self) -> list[RecordTurn]:
        with self._changed:
            batch, self._waiting = self._waiting, []
            if not batch:
                self._thread = None
            self._changed.notify_all()
            return batch


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - monotonic())
