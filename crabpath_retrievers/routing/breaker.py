"""A model that fails again and again is left alone for a while."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from circuitbreaker import STATE_CLOSED, STATE_HALF_OPEN, CircuitBreaker

_log = logging.getLogger(__name__)


class Breaker:
    """Opens after failures in a row; after a while a single call may try again."""

    def __init__(self, failures: int, seconds: float) -> None:
        """Open after so many failures, for so many seconds."""
        self._circuit = CircuitBreaker(failures, seconds, Exception, "chat model router")
        self._trying = threading.Lock()
        self._changing = threading.Lock()

    @property
    def state(self) -> str:
        """``closed``: calls are made; ``open``: none is; ``half_open``: one may try."""
        return str(self._circuit.state)

    @property
    def complaint(self) -> str:
        """Why no call is made."""
        circuit = self._circuit
        return (
            f"not asked: {circuit.failure_count} failures in a row, "
            f"next try in {max(0, circuit.open_remaining)} s, last: {circuit.last_failure!r}"
        )

    @contextmanager
    def admitted(self) -> Iterator[bool]:
        """Whether a call may be made now; of several that could try again, one may."""
        state = self._circuit.state
        alone = state == STATE_HALF_OPEN and self._trying.acquire(blocking=False)
        try:
            yield alone or state == STATE_CLOSED
        finally:
            if alone:
                self._trying.release()

    def report(self, failure: Exception | None) -> None:
        """Count a failure, or close the circuit after a success."""
        with self._changing:
            before = self._circuit.state
            with suppress(Exception), self._circuit:
                if failure is not None:
                    raise failure
            after = self._circuit.state
        if before == STATE_CLOSED != after:
            _log.warning("the chat model of the router is %s", self.complaint)
        elif before != STATE_CLOSED == after:
            _log.warning("the chat model of the router answers again")
