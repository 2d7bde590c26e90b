"""Engines, connections and locks: SQLite in WAL mode with private files, or PostgreSQL."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

from crabpath_retrievers.core.time_limit import DEFAULT_TIME_LIMIT, shorten_waiting, track_waiting
from crabpath_retrievers.errors import (
    ConfigurationError,
    MissingExtraError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

# No memory map: every recorded turn invalidates it, and page faults cost more than reads.
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA busy_timeout=10000",
    "PRAGMA cache_size=-32768",
    "PRAGMA temp_store=MEMORY",
)
_FULL = "disk is full"  # message of SQLite
_DISK_FULL = "53100"  # SQLSTATE of PostgreSQL
_LAZY = "crabpath_lazy"
_TRUSTED_SECONDS = 0.5  # a connection that answered so recently is used without asking again
_POOL: dict[str, Any] = {"pool_size": 8, "max_overflow": 16}


def open_engine(
    location: str | Path, *, reading: bool = False, time_limit: float = DEFAULT_TIME_LIMIT
) -> sa.Engine:
    """Create an engine for an SQLAlchemy URL, or for a directory that holds ``graph.sqlite``.

    Args:
        location: Directory or URL.
        reading: True for autocommit, where every statement sees the latest commit; False for
            transactions that take the write lock at their start.
        time_limit: Seconds to wait for a connection, > 0.

    Raises:
        StoreReadOnlyError: The directory cannot be written.
        ConfigurationError: The URL names a database other than SQLite or PostgreSQL.
        MissingExtraError: The driver of the database is not installed.
    """
    text = str(location)
    if "://" not in text:
        return _sqlite_engine(Path(text) / "graph.sqlite", reading, time_limit)
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError) as error:  # the latter for an invalid port
        msg = "the store URL cannot be read: use a form such as postgresql+psycopg://host/database"
        raise ConfigurationError(msg) from error
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            msg = "SQLite in memory is not supported: use a directory, or none at all"
            raise ConfigurationError(msg)
        return _sqlite_engine(Path(str(url.database)), reading, time_limit)
    if url.get_backend_name() != "postgresql":
        msg = f"{url.get_backend_name()} is not supported: use a directory, SQLite or PostgreSQL"
        raise ConfigurationError(msg)
    try:
        level = "AUTOCOMMIT" if reading else "READ COMMITTED"
        pool = {**_POOL, "pool_timeout": time_limit}
        engine = sa.create_engine(url, isolation_level=level, pool_pre_ping=True, **pool)
    except (ImportError, NoSuchModuleError) as error:
        msg = "PostgreSQL needs a driver: pip install 'crabpath-retrievers[postgres]'"
        raise MissingExtraError(msg) from error
    if engine.dialect.driver == "psycopg":
        _limit_waits(engine, time_limit)
    if not reading:
        event.listen(engine, "begin", _begin_lazily)
    return engine


def _begin_lazily(connection: sa.Connection) -> None:
    if connection.get_execution_options().get(_LAZY, False):
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")


def _limit_waits(engine: sa.Engine, time_limit: float) -> None:
    """Limit every wait of connections to the time limit of the call."""
    from crabpath_retrievers.storage.postgres import connect_within  # its driver is an extra

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, _args: Any, arguments: dict[str, Any]) -> Any:
        return connect_within(arguments, time_limit)

    ping = engine.dialect.do_ping

    def ping_briefly(connection: Any) -> bool:
        if monotonic() - connection.answered < _TRUSTED_SECONDS:
            return True
        # A firewall may have dropped an idle connection: leave time for a new one.
        with shorten_waiting(time_limit / 4):
            return ping(connection)

    engine.dialect.do_ping = ping_briefly  # type: ignore[method-assign, assignment]


@contextmanager
def open_connection(engine: sa.Engine, *, lazy: bool = False) -> Iterator[sa.Connection]:
    """Open a connection; the wait for it counts towards the time limit of the call.

    Args:
        engine: Engine of the store.
        lazy: Whether commits may be lost in a power failure, until another commit syncs them.
    """
    with track_waiting():
        connection = engine.connect().execution_options(**{_LAZY: lazy})
    with connection:
        yield connection


def ensure_private_directory(path: Path) -> Path:
    """Create a directory with mode 0700; raises ``StoreReadOnlyError`` if it cannot be written."""
    try:
        if not path.exists():
            path.mkdir(parents=True, mode=0o700)
        if not path.is_dir():
            msg = f"{path} is not a directory: choose another path for the store"
            raise StoreReadOnlyError(msg)
    except (OSError, ValueError) as error:  # the latter for invalid file names
        raise _build_read_only_error(path) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise _build_read_only_error(path)
    return path


def _build_read_only_error(path: Path) -> StoreReadOnlyError:
    msg = f"the store directory {path} cannot be written: change its permissions or choose another"
    return StoreReadOnlyError(msg)


def _sqlite_engine(path: Path, reading: bool, time_limit: float) -> sa.Engine:  # noqa: FBT001
    ensure_private_directory(path.parent)
    try:
        # The WAL and shared-memory files inherit the mode of the database file.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise _build_read_only_error(path.parent) from error
    engine = sa.create_engine(f"sqlite:///{path}", **_POOL, pool_timeout=time_limit)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        for pragma in _PRAGMAS:
            connection.execute(pragma)

    if not reading:

        @event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            # FULL syncs the disk at a commit, with everything committed before.
            lazy = connection.get_execution_options().get(_LAZY, False)
            level = "NORMAL" if lazy else "FULL"
            connection.exec_driver_sql(f"PRAGMA synchronous={level}")
            # A deferred transaction can fail with "locked" when it upgrades to a write.
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def open_snapshot_connection(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a connection whose statements all see the same state of the database.

    Args:
        engine: Engine with autocommit.
    """
    if engine.dialect.name != "sqlite":
        apart = engine.execution_options(isolation_level="REPEATABLE READ")
        with apart.connect() as connection:
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            yield connection
        return
    with engine.connect() as connection:
        # The snapshot of a SQLite transaction is taken by its first read.
        connection.exec_driver_sql("BEGIN")
        try:
            connection.exec_driver_sql("SELECT 1 FROM crabpath_meta").close()
            yield connection
        finally:
            connection.exec_driver_sql("ROLLBACK")


@contextmanager
def translate_database_errors(engine: sa.Engine) -> Iterator[None]:
    """Translate driver errors into ``StoreError`` and its subclasses, which say what to do."""
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        text = str(error.orig)
        name = engine.url.render_as_string(hide_password=True)
        if "readonly" in text or "read-only" in text:
            msg = f"the store {name} cannot be written: check the permissions of its files"
            raise StoreReadOnlyError(msg) from error
        if "locked" in text or "deadlock" in text:
            msg = f"the store {name} is busy: another process is writing; try again"
            raise StoreLockedError(msg) from error
        if _FULL in text or getattr(error.orig, "sqlstate", None) == _DISK_FULL:
            raise build_disk_full_error(name) from error
        if _is_refusal(error.orig):
            raise _build_refusal(text) from error
        msg = f"the store {name} cannot be reached ({_first_line(text)}): is the database running?"
        raise StoreUnavailableError(msg) from error
    except DBAPIError as error:
        raise _build_refusal(str(error.orig)) from error
    except sa.exc.TimeoutError as error:
        name = engine.url.render_as_string(hide_password=True)
        msg = f"all connections of this process to the store {name} are in use: try again"
        raise StoreUnavailableError(msg) from error


def build_disk_full_error(name: str) -> StoreFullError:
    """The error for a full disk."""
    return StoreFullError(f"the disk of {name} is full: make room; what was acknowledged is kept")


def _is_refusal(error: BaseException | None) -> bool:
    """Whether a database, or its driver, refused a statement, and no connection failed."""
    state = getattr(error, "sqlstate", None)
    if state is not None:  # of PostgreSQL: classes 08 and 57 mean that it is unavailable
        return not state.startswith(("08", "57"))
    if isinstance(error, sqlite3.Error):
        return not any(sign in str(error) for sign in ("unable to open", "disk I/O"))
    return "number of parameters" in str(error)


def _build_refusal(text: str) -> StoreError:
    return StoreError(f"the store refused an operation: {_first_line(text)}")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no detail"


# PostgreSQL names advisory locks by numbers; stores in other schemas have their own.
_INGEST = sa.func.hashtextextended(sa.func.concat("crabpath ingest ", sa.func.current_schema()), 0)
_SCHEMA = sa.func.hashtextextended(sa.func.concat("crabpath schema ", sa.func.current_schema()), 0)


def lock_schema(connection: sa.Connection) -> None:
    """Keep other processes from creating the tables until the transaction ends.

    Does nothing on SQLite, whose write transactions exclude each other.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA)))


@contextmanager
def ingest_lock(engine: sa.Engine, *, wait: bool) -> Iterator[bool]:
    """Keep other processes from ingesting; the lock ends with the process.

    Args:
        engine: Engine of the store with autocommit.
        wait: Whether to wait while another process ingests.

    Yields:
        Whether the lock is held; always True with ``wait``.
    """
    held = (
        _file_lock(engine, wait)
        if engine.dialect.name == "sqlite"
        else _advisory_lock(engine, wait)
    )
    with held as is_held:
        yield is_held


@contextmanager
def _file_lock(engine: sa.Engine, wait: bool) -> Iterator[bool]:  # noqa: FBT001
    lock = FileLock(f"{engine.url.database}.lock", mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


@contextmanager
def _advisory_lock(engine: sa.Engine, wait: bool) -> Iterator[bool]:  # noqa: FBT001
    acquire = sa.func.pg_advisory_lock if wait else sa.func.pg_try_advisory_lock
    with engine.connect() as connection:
        # The waiting form returns nothing once it holds the lock.
        held = connection.scalar(sa.select(acquire(_INGEST))) is not False
        try:
            yield held
        finally:
            if held:
                connection.execute(sa.select(sa.func.pg_advisory_unlock(_INGEST)))
