"""Turn records are written behind the answers, several in one transaction.

An answer must not wait for the one writer that a database has. Whoever reads turns, or changes
anything, waits for what was handed over before; so does closing. A process that is killed loses at
most the turns of its last milliseconds, which nobody has acted on.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from crabpath_retrievers.changes import RecordTurn
from crabpath_retrievers.errors import CrabPathError

_log = logging.getLogger(__name__)
_MOST = 256  # turns that may wait before answers do


class TurnWriter:
    """A queue of turn records with one thread that empties it."""

    def __init__(self, write: Callable[[Sequence[RecordTurn]], None]) -> None:
        """Hand batches to ``write``, which puts each into one transaction."""
        self._write = write
        self._changed = threading.Condition()
        self._waiting: list[RecordTurn] = []
        self._writing = False
        self._thread: threading.Thread | None = None

    def put(self, record: RecordTurn) -> None:
        """Hand over a record; waits only while too many are waiting already."""
        with self._changed:
            while len(self._waiting) >= _MOST:
                self._changed.wait()
            self._waiting.append(record)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="crabpath-turns")
                self._thread.start()

    def settle(self) -> None:
        """Wait until everything that was handed over is written."""
        if threading.current_thread() is self._thread:
            return
        with self._changed:
            while self._waiting or self._writing:
                self._changed.wait()

    def _work(self) -> None:
        """Write until nothing waits; the next record starts a new thread."""
        while True:
            with self._changed:
                batch, self._waiting = self._waiting, []
                self._writing = bool(batch)
                self._changed.notify_all()
                if not batch:
                    self._thread = None
                    return
            try:
                self._write(batch)
            except CrabPathError as error:
                _log.warning("%d turn records could not be written: %s", len(batch), error)
