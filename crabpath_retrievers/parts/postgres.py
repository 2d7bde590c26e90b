"""Connections to PostgreSQL with a time limit on every wait; needs the extra ``postgres``.

psycopg waits without limit, and timeouts of the server do not help when the server is stopped or
its packets are dropped. Behind a pooler of transactions nothing that belongs to a session is used.
"""

import math
import random
import re
import selectors
from collections.abc import Generator, Mapping
from time import monotonic, sleep
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from crabpath_retrievers.core.calls import track_waiting
from crabpath_retrievers.core.processes import find_interruption
from crabpath_retrievers.errors import ConfigurationError
from crabpath_retrievers.storage.sql_tools import ABORTED, LOST, PAUSES

T = TypeVar("T")
_TIMEOUT = "no answer within settings.time_limit"
# All statements look rows up by key: a plan of its own for every set of values costs more than it
# gains, and so does compiling one.
# Starting parallel workers takes 15 ms; the full text of a million chunks is searched in 0.5 ms.
# What queries read is in memory or on a disk without heads: with the cost of a seek that is the
# default, PostgreSQL reads whole tables of thousands of rows to find a few.
_SESSION = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; "
    "SET max_parallel_workers_per_gather = 0; SET random_page_cost = 1.1; "
    "SET default_transaction_isolation = 'read committed'"  # of statements outside a transaction
)
# A pooler gives its clients keys of its own for the process, and any process for a transaction.
_PROBE = "SELECT pg_backend_pid(), current_setting('search_path')"
_PATH = re.compile(r"(?:-c\s*|--)search[_-]path=((?:\\.|\S)+)")
_NO_SCHEMA = (
    "the pooler does not pass options=-csearch_path={} to the server, so the memory would be in "
    "another schema: leave options out, and give this schema a role of its own (ALTER ROLE … SET "
    "search_path = …), or the memory a database of its own"
)
_lossy: set[tuple[str, int, str]] = set()  # host, port and database that lost a statement
# Detects a dead peer within a minute, also for work without a time limit.
_KEEPALIVES = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class RepeatingCursor(psycopg.Cursor[Any]):
    """Repeats a statement that is a transaction of its own when the server ended it."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> "RepeatingCursor":
        """Execute ``query`` with ``params``, as the driver's cursor does."""
        connection = self.connection
        for pause in PAUSES:
            try:
                return super().execute(query, params, **options)
            except psycopg.Error as error:
                if error.sqlstate in LOST:
                    connection.prepare_threshold = None
                    _lossy.add(_name_server(connection))
                elif error.sqlstate not in ABORTED:
                    raise
                state = connection.pgconn
                if (
                    state.transaction_status != TransactionStatus.IDLE
                    or state.pipeline_status != PipelineStatus.OFF
                ):
                    raise
            sleep(random.uniform(0, pause))  # noqa: S311
        return super().execute(query, params, **options)


class LimitedConnection(psycopg.Connection[Any]):
    """Closes itself and raises ``OperationalError`` when the time limit of the call has passed.

    Attributes:
        is_pooled: Whether each transaction may be on another connection of the server.
        answered: When the server last answered, by ``time.monotonic``.
        patience: Seconds that one wait may take at most, besides that limit; None for no other.
    """

    is_pooled = False
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

    def has_news(self) -> bool:
        """Whether the server has sent something unasked, such as that it closes the connection."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            return bool(selector.select(0))

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


def connect_within(arguments: Mapping[str, Any], seconds: float) -> LimitedConnection:
    """Connect within a time limit.

    Args:
        arguments: Arguments of the driver, whose own time limits take precedence; with
            ``prepare_threshold`` as text, where "None" and "0" mean no prepared statements.
        seconds: Limit for calls without one of their own; the driver rounds up to at least 2
            seconds.

    Raises:
        ConfigurationError: A pooler does not forward the schema, or an option is not known.
        psycopg.OperationalError: The limit is exceeded.
    """
    with track_waiting() as deadline:
        left = seconds if deadline is None else deadline - monotonic()
        if left <= 0:
            raise psycopg.OperationalError(_TIMEOUT)
        limits = {"connect_timeout": math.ceil(left), **_KEEPALIVES}
        given = {"cursor_factory": RepeatingCursor, **limits, **arguments}
        prepared = given.pop("prepare_threshold", None)
        try:
            connection = LimitedConnection.connect(**given, autocommit=True)
        except psycopg.OperationalError as error:
            if "unsupported startup parameter" not in str(error):
                raise
            wanted = _PATH.search(str(given.get("options")))
            msg = _NO_SCHEMA.format(wanted[1] if wanted else "…")
            raise ConfigurationError(msg) from error
        except psycopg.ProgrammingError as error:
            if (found := find_interruption(error, None)) is not None:
                raise found from None  # the driver calls any error in a number a bad value
            msg = f"the store URL cannot be used ({error}): leave out what the driver does not know"
            raise ConfigurationError(msg) from error
        try:
            _set_up(connection, prepared)
        except BaseException:
            connection.close()
            raise
        return connection


def _set_up(connection: LimitedConnection, prepared: str | None) -> None:
    process, path = connection.execute(_PROBE, prepare=False).fetchone() or (0, "")
    connection.is_pooled = process != connection.info.backend_pid
    if connection.is_pooled:
        wanted = _PATH.findall(connection.info.options)
        if wanted and re.sub(r"\\(.)", r"\1", wanted[-1]) != path:
            raise ConfigurationError(_NO_SCHEMA.format(wanted[-1]))
    else:
        connection.execute(_SESSION)
    never = prepared in ("None", "0") or (prepared is None and connection.is_pooled)
    if never or _name_server(connection) in _lossy:
        connection.prepare_threshold = None
    elif prepared is not None:
        connection.prepare_threshold = int(prepared)
    # Names that no other client of a pooler has: never is another's statement executed.
    connection._prepared._prepared_idx = random.getrandbits(62)  # noqa: SLF001
    connection.autocommit = False


def _name_server(connection: psycopg.Connection[Any]) -> tuple[str, int, str]:
    known = connection.info
    return known.host, known.port, known.dbname
