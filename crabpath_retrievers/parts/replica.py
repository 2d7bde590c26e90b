"""A read replica of a store: a streaming standby of its server, asked while it is fresh enough.

How far it is behind is measured in positions of the write-ahead log, which both servers count
alike, so that neither their clocks nor a pause of writing matter: it is as old as the last position
of the primary that it has replayed.
"""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple, NoReturn

import sqlalchemy as sa
from sqlalchemy import event

from crabpath_retrievers.core.calls import shorten_waiting
from crabpath_retrievers.errors import ConfigurationError, StoreError
from crabpath_retrievers.storage.database import (
    MAX_CONNECTIONS,
    open_connection,
    open_engine,
    translate_database_errors,
)
from crabpath_retrievers.storage.schema import meta
from crabpath_retrievers.storage.store import DEFAULT_MAX_LAG, ReplicaAwayError

_log = logging.getLogger(__name__)
_AWAY = "queries go to the primary: %s"
IDENTITY = "identity"
"""Name in the facts about a store by which a replica of it is known; never copied to another."""

_INTERVAL = 1.0  # seconds between two questions how far the replica is
_PAUSE = 0.05
_PATIENCE = 1.0  # seconds for each of its answers
_MAX_SAMPLES = 3600  # positions of the primary that the replica has not replayed yet
_ANSWERED = ("40", "42", "22", "25", "XX")  # classes of SQLSTATE of a server that is well

_POSITION = "pg_wal_lsn_diff({}, '0/0')::bigint"
_SYSTEM = "(SELECT system_identifier FROM pg_control_system())"
_WRITTEN = f"SELECT {_POSITION.format('pg_current_wal_lsn()')}, {_SYSTEM}"
# With what is not flushed yet: no replica that has replayed this lacks a commit before.
_INSERTED = f"SELECT {_POSITION.format('pg_current_wal_insert_lsn()')}"
_REPLAYED = f"SELECT {_POSITION.format('pg_last_wal_replay_lsn()')}"
_STATE = (
    f"{_REPLAYED}, {_SYSTEM}, pg_is_in_recovery(), to_regclass('{meta.name}') IS NOT NULL, "
    "extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8"
)


class ReplicaState(NamedTuple):
    """State of a read replica.

    ``lag``, in seconds, is None where it is not known; ``problem`` says why queries go to the
    primary.
    """

    name: str
    lag: float | None
    problem: str | None

    def describe(self) -> str:
        """The state in a few words, for people."""
        if self.problem is not None:
            return f"queries go to the primary: {self.problem}"
        return f"the read replica is {self.lag or 0.0:.1f} s behind"


class _Found(NamedTuple):
    """Answer of a replica; positions in bytes of the write-ahead log, ages in seconds."""

    replayed: int | None
    system: int
    is_standby: bool
    has_tables: bool
    age: float | None
    identity: str | None


def ensure_identity(connection: sa.Connection) -> str:
    """Return the identity of a store, which is chosen at the first call.

    The open transaction may write, and keeps other processes out.
    """
    identity = _read_identity(connection)
    if identity is None:
        identity = str(connection.scalar(sa.text("SELECT gen_random_uuid()")))
        connection.execute(meta.insert().values(name=IDENTITY, value=identity))
    return identity


def _read_identity(connection: sa.Connection) -> str | None:
    query = sa.select(meta.c.value).where(meta.c.name == IDENTITY)
    found: str | None = connection.scalar(query)
    return found


class Replica:
    """Connections to a replica, and a thread that asks once a second how far it is.

    A process that has written reads from the primary until the replica has what it wrote.

    ``identity`` is that of the store; None where no replica was used before.
    """

    def __init__(
        self,
        url: str,
        primary: sa.Engine,
        *,
        identity: str | None = None,
        max_lag: float = DEFAULT_MAX_LAG,
        time_limit: float,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        """Keep the place of a replica; :meth:`start` connects.

        Args:
            identity: Identity of the store; None until :meth:`find_identity`.
            max_lag: Seconds that the replica may be behind.
            time_limit: Seconds for a call. A quarter of it is spent on a replica that does not
                answer, so that the rest suffices for the primary.
            connections: Most connections.
        """
        self._patience = time_limit / 4
        self.engine = open_engine(
            url, reading=True, time_limit=self._patience, connections=connections
        )
        self.identity = identity
        self._primary, self._max_lag = primary, max_lag

        @event.listens_for(self.engine, "connect")
        def _limit_wait(connection: Any, _record: Any) -> None:
            connection.patience = self._patience

        self._lock = threading.Lock()
        self._problem: str | None = "it was not asked yet"
        self._lag: float | None = None
        self._fresh_at = float("-inf")  # it has all that was written before
        self._samples: deque[tuple[float, int]] = deque(maxlen=_MAX_SAMPLES)
        self._has_written, self._required, self._replayed = False, 0, 0
        self._is_started, self._closed = False, threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """URL of the replica, without password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def state(self) -> ReplicaState:
        """Last known replica state (refreshed every second)."""
        problem = self._problem
        if problem is None and not self._is_fresh():
            problem = self._describe_lag(monotonic() - self._fresh_at)
        return ReplicaState(self.name, self._lag, problem)

    def find_identity(self) -> None:
        """Read the identity from the store, which is not changed."""
        with translate_database_errors(self._primary), open_connection(self._primary) as connection:
            self.identity = _read_identity(connection)

    def start(self) -> None:
        """Ask the replica now, and from now on every second.

        A replica that cannot be reached is no error: until it can, queries are answered by the
        primary.
        """
        until = monotonic() + _PATIENCE
        while self._problem is not None:
            try:
                self.check()
            except StoreError:
                break
            if monotonic() > until:
                break
            sleep(_PAUSE)  # a new memory reaches it soon
        if self._problem is not None:
            _log.warning(_AWAY, self._problem)
        self._is_started = True
        self._watch()

    def check(self) -> None:
        """Ask both servers how far they are.

        Raises:
            ConfigurationError: The replica is no standby, or one of another server, or holds
                another store.
            StoreError: One of the servers did not answer; queries are answered by the primary.
        """
        try:
            with shorten_waiting(_PATIENCE):
                written, system = self._ask_primary()
            with shorten_waiting(_PATIENCE):
                found = self._ask()
            self._require_same(found, written, system)
            self._measure(found, written)
        except StoreError as error:
            self._lag = None
            self._set_problem(str(error))
            raise
        except ConfigurationError as error:
            self._lag = None
            self._set_problem(str(error))
            raise
        lag = monotonic() - self._fresh_at
        self._set_problem(self._describe_lag(lag) if lag > self._max_lag else None)

    def _ask_primary(self) -> tuple[int, int]:
        """Write position and identity of the primary."""
        engine = self._primary
        with translate_database_errors(engine), open_connection(engine) as connection:
            asked = monotonic()
            written, system = connection.exec_driver_sql(_WRITTEN).one()
        self._samples.append((asked, written))
        return written, system

    def _ask(self) -> _Found:
        engine = self.engine
        with translate_database_errors(engine), open_connection(engine) as connection:
            replayed, system, is_standby, has_tables, age = connection.exec_driver_sql(_STATE).one()
            identity = _read_identity(connection) if has_tables else None
        return _Found(replayed, system, is_standby, has_tables, age, identity)

    def _require_same(self, found: _Found, written: int, system: int) -> None:
        """Refuse a server that is no replica of this store."""
        if found.system != system or not found.is_standby or found.replayed is None:
            self._refuse("is no streaming standby of the server of the memory")
        if found.identity == self.identity and found.has_tables:
            return
        if found.replayed >= written:
            held = "another memory" if found.has_tables else "no memory"
            self._refuse(f"holds {held} where this one should be")
        # Otherwise it may not have replayed yet that the memory was created.

    def _refuse(self, what: str) -> NoReturn:
        msg = (
            f"{self.name} {what}: pass as replica the URL of a standby, with the database and "
            "the options of the path, or leave replica out"
        )
        raise ConfigurationError(msg)

    def _measure(self, found: _Found, written: int) -> None:
        """Store how far the replica is behind: as far as its newest replayed position is old."""
        assert found.replayed is not None  # noqa: S101
        self._replayed = found.replayed
        samples = self._samples
        while samples and samples[0][1] <= found.replayed:
            self._fresh_at = max(self._fresh_at, samples.popleft()[0])
        if self._fresh_at == float("-inf") and found.age is not None:  # older than this process
            self._fresh_at = monotonic() - found.age
        is_same = found.identity == self.identity
        if not is_same:
            self._fresh_at = float("-inf")
        self._lag = 0.0 if found.replayed >= written else max(0.0, monotonic() - self._fresh_at)
        if self._lag == float("inf"):
            self._lag = None

    def _describe_lag(self, lag: float) -> str:
        known = f"{lag:.1f} s" if lag < float("inf") else "far"
        return f"the read replica {self.name} is {known} behind, more than {self._max_lag:g} s"

    def _set_problem(self, problem: str | None) -> None:
        """Log once that the replica is out of use, and once that it is back."""
        with self._lock:
            before, self._problem = self._problem, problem
        if not self._is_started:
            return
        if problem is not None and before is None:
            _log.warning(_AWAY, problem)
        elif problem is None and before is not None:
            _log.info("queries go to the read replica %s", self.name)

    def _is_fresh(self) -> bool:
        return monotonic() - self._fresh_at <= self._max_lag

    def _watch(self) -> None:
        """Start the thread that asks the replica, unless it runs.

        A forked process has no copy of the thread.
        """
        if self._closed.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        own = (weakref.ref(self), self._closed)
        self._thread = threading.Thread(
            target=_check_again_and_again, args=own, name="crabpath-replica", daemon=True
        )
        self._thread.start()

    def note_write(self) -> None:
        """Require this process's later replica reads to include its last write."""
        self._has_written = True

    @contextmanager
    def connect(self) -> Iterator[sa.Connection]:
        """Open a connection to the replica, for all the reads of one query.

        Raises:
            ReplicaAwayError: The replica is out of use, lacks what this process has written, or
                failed, now or while the connection was used.
        """
        self._watch()
        if self._problem is None and not self._is_fresh():
            self._set_problem(self._describe_lag(monotonic() - self._fresh_at))
        if self._problem is not None:
            raise ReplicaAwayError(self.state.describe())
        if self._has_written:
            self._has_written = False
            self._required = self._read_inserted()
        try:
            with ExitStack() as stack:
                with shorten_waiting(self._patience):
                    connection = stack.enter_context(open_connection(self.engine))
                self._require_own_writes(connection)
                yield connection
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            self._report(error)
            msg = f"the read replica {self.name} failed"
            raise ReplicaAwayError(msg) from error

    def _read_inserted(self) -> int:
        try:
            with open_connection(self._primary) as connection:
                position: int = connection.exec_driver_sql(_INSERTED).scalar_one()
        except sa.exc.SQLAlchemyError as error:
            self._has_written = True
            msg = "the primary did not say how far it is"
            raise ReplicaAwayError(msg) from error
        return position

    def _require_own_writes(self, connection: sa.Connection) -> None:
        if self._replayed >= self._required:
            return
        self._replayed = connection.exec_driver_sql(_REPLAYED).scalar_one() or 0
        if self._replayed < self._required:
            msg = "the read replica has not replayed yet what this process wrote"
            raise ReplicaAwayError(msg)

    def _report(self, error: sa.exc.SQLAlchemyError) -> None:
        """Stop using a replica that is away; one that only refused a statement stays in use."""
        state = getattr(getattr(error, "orig", None), "sqlstate", None) or ""
        if isinstance(error, sa.exc.TimeoutError) or state.startswith(_ANSWERED):
            _log.debug("the read replica failed, and the primary answers", exc_info=error)
            return
        try:
            with translate_database_errors(self.engine):
                raise error
        except StoreError as translated:
            self._set_problem(str(translated))

    def close(self) -> None:
        """Close all connections, and end the thread."""
        self._closed.set()
        self.engine.dispose()


def _check_again_and_again(own: "weakref.ref[Replica]", closed: threading.Event) -> None:
    """Ask the replica every second until it is closed or garbage-collected."""
    while not closed.wait(_INTERVAL):
        replica = own()
        if replica is None:
            return
        try:
            replica.check()
        except (StoreError, ConfigurationError):
            _log.debug("the read replica is out of use", exc_info=True)
        except Exception:
            _log.warning("asking the read replica failed", exc_info=True)
        del replica
