"""Circuit breaker: a model that fails repeatedly is not called for a while."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from circuitbreaker import STATE_CLOSED, STATE_HALF_OPEN, CircuitBreaker

_log = logging.getLogger(__name__)


class ModelBreaker:
    """Opens after consecutive failures; after a while it admits a single trial call."""

    def __init__(self, failures: int, seconds: float) -> None:
        """Open after ``failures`` consecutive failures, for ``seconds``."""
        self._circuit = CircuitBreaker(failures, seconds, Exception, "chat model router")
        self._trial = threading.Lock()
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """``closed``: calls are made; ``open``: no call is; ``half_open``: one trial call is."""
        return str(self._circuit.state)

    @property
    def reason(self) -> str:
        """Why no call is made."""
        circuit = self._circuit
        return (
            f"not asked: {circuit.failure_count} failures in a row, "
            f"next try in {max(0, circuit.open_remaining)} s, last: {circuit.last_failure!r}"
        )

    @contextmanager
    def admit(self) -> Iterator[bool]:
        """Whether a call may be made now; in state ``half_open`` one of several may."""
        state = self._circuit.state
        trial = state == STATE_HALF_OPEN and self._trial.acquire(blocking=False)
        try:
            yield trial or state == STATE_CLOSED
        finally:
            if trial:
                self._trial.release()

    def report(self, failure: Exception | None) -> None:
        """Count a failure; None is a success, which closes the circuit."""
        with self._lock:
            before = self._circuit.state
            with suppress(Exception), self._circuit:
                if failure is not None:
                    raise failure
            after = self._circuit.state
        if before == STATE_CLOSED != after:
            _log.warning("the chat model of the router is %s", self.reason)
        elif before != STATE_CLOSED == after:
            _log.warning("the chat model of the router answers again")
