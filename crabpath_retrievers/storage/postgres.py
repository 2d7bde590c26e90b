"""Connections to PostgreSQL with a time limit on every wait; needs the extra ``postgres``.

psycopg waits without limit, and timeouts of the server do not help when the server is stopped or
its packets are dropped.
"""

import math
from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

from crabpath_retrievers.core.time_limit import track_waiting

T = TypeVar("T")
_TIMEOUT = "no answer within settings.time_limit"
# Detects a dead peer within a minute, also for work without a time limit.
# All statements look rows up by key: a plan of its own for every set of values costs more than it
# gains, and so does compiling one.
# Starting parallel workers takes 15 ms; the full text of a million chunks is searched in 0.5 ms.
_SESSION = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; "
    "SET max_parallel_workers_per_gather = 0"
)
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself and raises ``OperationalError`` when the time limit of the call has passed.

    Attributes:
        answered: When the server last answered, by ``time.monotonic``.
        patience: Seconds that one wait may take at most, besides that limit; None for no other.
    """

    answered = 0.0
    patience: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Override of the driver, which waits for all statements and commits here."""
        with track_waiting() as deadline:
            own = None if self.patience is None else monotonic() + self.patience
            until = min((end for end in (deadline, own) if end is not None), default=None)
            steps = gen if until is None else self._limit_steps(gen, until)
            result = super().wait(steps, *args, **options)
        self.answered = monotonic()
        return result

    def _limit_steps(
        self, steps: Generator[Any, Any, T], deadline: float
    ) -> Generator[Any, Any, T]:
        """Yield from ``steps`` until the deadline; the driver resumes at least every 0.1 s."""
        try:
            request = next(steps)
            while True:
                ready = yield request
                if monotonic() > deadline:
                    steps.close()
                    # A late answer would be read as that of the next statement.
                    self.pgconn.finish()
                    raise psycopg.OperationalError(_TIMEOUT)
                request = steps.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value


def connect_within(arguments: dict[str, Any], seconds: float) -> LimitedConnection:
    """Connect within a time limit.

    Args:
        arguments: Arguments of the driver; its own time limits take precedence.
        seconds: Limit for calls without one; the driver rounds up to at least 2 seconds.

    Raises:
        psycopg.OperationalError: The limit has passed.
    """
    with track_waiting() as deadline:
        left = seconds if deadline is None else deadline - monotonic()
        if left <= 0:
            raise psycopg.OperationalError(_TIMEOUT)
        limits = {"connect_timeout": math.ceil(left), **_KEEPALIVES}
        connection = LimitedConnection.connect(**{**limits, **arguments})
        connection.execute(_SESSION)
        connection.commit()
        return connection
