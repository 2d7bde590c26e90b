"""Connections to PostgreSQL that give up on a server which says nothing.

psycopg waits for ever, and limits that the server keeps do not help where it is stopped or its
packets are dropped. Imported with the first connection, for the driver is optional.
"""

import math
from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg

from crabpath_retrievers.time_limit import waiting

T = TypeVar("T")
_SILENT = "no answer within settings.time_limit"
# Work without a limit notices within a minute that the machine at the other end is gone.
_ALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class Connection(psycopg.Connection[Any]):
    """Closes itself, and fails, when the call that it serves has waited too long."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """As the driver's, which runs all statements and commits through this."""
        with waiting() as until:
            steps = gen if until is None else self._limited(gen, until)
            return super().wait(steps, *args, **options)

    def _limited(self, steps: Generator[Any, Any, T], until: float) -> Generator[Any, Any, T]:
        """The same steps until a moment; the driver goes on every tenth of a second at least."""
        try:
            asked = next(steps)
            while True:
                ready = yield asked
                if monotonic() > until:
                    steps.close()
                    self.pgconn.finish()  # what it still sends would be taken for the next answer
                    raise psycopg.OperationalError(_SILENT)
                asked = steps.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value


def connect(given: dict[str, Any], seconds: float) -> Connection:
    """A connection that is made within a time limit.

    Args:
        given: Arguments of the driver; those of its own that limit time stand.
        seconds: Limit where the call has none; the driver rounds up, to 2 seconds at least.
    """
    with waiting() as until:
        left = seconds if until is None else until - monotonic()
        if left <= 0:
            raise psycopg.OperationalError(_SILENT)
        limits = {"connect_timeout": math.ceil(left), **_ALIVE}
        return Connection.connect(**{**limits, **given})
