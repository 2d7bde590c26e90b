"""A background thread that starts when there is work and ends when there is none."""

import logging
import threading
from collections.abc import Callable

from crabpath_retrievers.errors import StoreError

_log = logging.getLogger(__name__)


class BackgroundWorker:
    """Runs at most one thread at a time, started with the first request and after every pause."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        """Run ``work`` in a thread called ``name``; its errors are logged."""
        self._work, self._name = work, name
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
