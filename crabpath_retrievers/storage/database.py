"""Engines, connections and locks: SQLite in WAL mode with private files, or PostgreSQL.

Last how PostgreSQL writes its tables anew, so that nothing holds what was deleted from them.
"""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, NoSuchModuleError, OperationalError

from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, shorten_waiting, track_waiting
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.processes import find_interruption, raise_interruption, require_engine
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.errors import (
    ConfigurationError,
    InvalidInputError,
    MissingExtraError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.storage.sql_tools import ABORTED, LOST, find_state

# No memory map: every recorded turn invalidates it, and page faults cost more than reads.
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA busy_timeout=10000",
    "PRAGMA cache_size=-32768",
    "PRAGMA temp_store=MEMORY",
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # of the disk, also for one more file, or of a user on it
# Messages of SQLite.
_FULL, _UNOPENED = "disk is full", "unable to open database file"
_DAMAGED = ("malformed", "not a database", "decode to UTF-8", "corrupt")
# SQLSTATE of PostgreSQL; classes 08 and 57 mean that it is unavailable.
_DISK_FULL, _READ_ONLY, _NO_LOCK, _AWAY = "53100", "25006", "55P03", ("08", "57")
_NO_SCHEMA = "3F000"
# Whose exceptions are of the database; psycopg drops the traceback of others.
_MODULES = ("sqlalchemy", "psycopg", "sqlite3", "builtins", "crabpath_retrievers")
_LAZY = "crabpath_lazy"
_TRUSTED_SECONDS = 0.5  # a connection that answered so recently is used without asking again
_POOL: dict[str, Any] = {"pool_size": 8, "max_overflow": 16}
_POLL = 0.05  # seconds between two attempts to take a lock
MAX_CONNECTIONS = 24
"""Connections of a process to a PostgreSQL server, half of them for reading."""

_OFF = ("0", "none", "true")  # values of the options that turn prepared statements off
_CACHES = (
    "pgbouncer",
    "prepare_threshold",
    "prepared_statement_cache_size",
    "statement_cache_size",
)


def is_postgres(place: object) -> bool:
    """Whether a place is the URL of a PostgreSQL database, with whatever driver."""
    return re.match(r"postgres(ql)?(\+\w+)?://", str(place), re.IGNORECASE) is not None


def parse_url(text: str) -> sa.URL:
    """Parse the URL of a database; PostgreSQL gets the driver psycopg, and options it knows."""
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError) as error:  # the latter for an invalid port
        msg = "the store URL cannot be read: use a form such as postgresql+psycopg://host/database"
        raise ConfigurationError(msg) from error
    if "@" in (url.host or ""):  # the rest of a password, which messages would show
        msg = "the store URL has an @ in its user or password: write it as %40"
        raise ConfigurationError(msg)
    if not is_postgres(text):
        return url
    query = dict(url.query)
    caches = [(name, str(query.pop(name)).lower()) for name in _CACHES if name in query]
    if "ssl" in query:  # of asyncpg
        query["sslmode"] = query.pop("ssl")
    for name, value in caches:
        if value in _OFF:
            query["prepare_threshold"] = "None"
        elif name == "prepare_threshold":
            if not value.isdecimal():
                msg = f"{name}={value} in the store URL must be a number, or None for never"
                raise ConfigurationError(msg)
            query[name] = value
    return url.set(drivername="postgresql+psycopg", query=query)


def open_engine(
    location: str | Path,
    *,
    reading: bool = False,
    time_limit: float = DEFAULT_TIME_LIMIT,
    connections: int = MAX_CONNECTIONS,
) -> sa.Engine:
    """Create an engine for an SQLAlchemy URL, or for a directory that holds ``graph.sqlite``.

    An engine for ``reading`` commits each statement and sees the latest commit; others take the
    write lock when a transaction begins. Of the ``connections`` to PostgreSQL, at least 4, an
    engine takes half.
    """
    if not is_url(location):
        return _sqlite_engine(Path(location) / "graph.sqlite", reading, time_limit)
    url = parse_url(str(location))
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
        size = min(_POOL["pool_size"], most := connections // 2)
        pool = {"pool_size": size, "max_overflow": most - size, "pool_timeout": time_limit}
        engine = sa.create_engine(url, isolation_level=level, pool_pre_ping=True, **pool)
    except (ImportError, NoSuchModuleError) as error:
        msg = "PostgreSQL needs a driver: pip install 'crabpath-retrievers[postgres]'"
        raise MissingExtraError(msg) from error
    _use_own_connections(engine, time_limit)
    if not reading:
        event.listen(engine, "begin", _begin_lazily)
    return engine


def _begin_lazily(connection: sa.Connection) -> None:
    if connection.get_execution_options().get(_LAZY, False):
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")


def _use_own_connections(engine: sa.Engine, time_limit: float) -> None:
    """Let the engine connect by the part for PostgreSQL, and check connections by its ping.

    Both keep the time limit of a call, of ``time_limit`` seconds outside of calls. If a pooler has
    lost a prepared statement, all connections are replaced.
    """
    part = load_part("crabpath_retrievers.parts.postgres")

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, _args: Any, arguments: dict[str, Any]) -> Any:
        return part.connect_within(arguments, time_limit)

    dialect: Any = engine.dialect
    ping, is_disconnect = dialect.do_ping, dialect.is_disconnect

    def ping_briefly(connection: Any) -> bool:
        answered = monotonic() - connection.answered < _TRUSTED_SECONDS
        if answered and not connection.has_news():
            return True
        # A firewall may have dropped an idle connection: leave time for a new one.
        with shorten_waiting(time_limit / 4):
            return bool(ping(connection))

    def is_useless(error: Any, *given: Any) -> bool:
        # All connections are replaced by ones that prepare nothing.
        return find_state(error) in LOST or bool(is_disconnect(error, *given))

    dialect.do_ping, dialect.is_disconnect = ping_briefly, is_useless


@contextmanager
def open_connection(engine: sa.Engine, *, lazy: bool = False) -> Iterator[sa.Connection]:
    """Open a connection; the wait for it counts towards the time limit of the call.

    A ``lazy`` connection may lose commits in a power failure, until another commit syncs them.
    """
    with track_waiting():
        connection = engine.connect().execution_options(**{_LAZY: lazy})
    with connection:
        yield connection


def ensure_private_directory(path: Path) -> Path:
    """Create a directory with mode 0700."""
    try:
        if not path.exists():
            path.mkdir(parents=True, mode=0o700)
        if not path.is_dir():
            msg = f"{path} is not a directory: choose another path for the store"
            raise StoreReadOnlyError(msg)
    except (OSError, ValueError) as error:  # the latter for invalid file names
        raise _explain_unwritten(path, error) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise _explain_unwritten(path)
    return path


def _explain_unwritten(path: Path, error: Exception | None = None) -> StoreError:
    """Explain why a directory cannot be written: no room, or a missing right.

    ``error`` is that of the attempt; None counts as a missing right.
    """
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return build_disk_full_error(str(path))
    msg = f"the store directory {path} cannot be written: change its permissions or choose another"
    return StoreReadOnlyError(msg)


def _sqlite_engine(path: Path, reading: bool, time_limit: float) -> sa.Engine:  # noqa: FBT001
    require_engine("sqlite")
    # The library makes it absolute without asking what links and ".." lead to.
    path = ensure_private_directory(path.parent).resolve() / path.name
    try:
        # The WAL and shared-memory files inherit the mode of the database file. One that exists is
        # not opened here: closing it would free the locks of all connections of this process.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise _explain_unwritten(path.parent, error) from error
    url = sa.URL.create("sqlite", database=str(path))
    engine = sa.create_engine(url, **_POOL, pool_timeout=time_limit)

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
    """Open a connection (of an autocommit engine) that sees one state of the database."""
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
    """Translate driver errors in a block into ``StoreError``, or ``InvalidInputError`` for NUL.

    These say what to do. An exception that a signal handler raised leaves the block unchanged.
    """
    known = sys.exc_info()[1]
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        if found := find_interruption(error, known, _MODULES):
            raise found from None
        if not isinstance(error, (DBAPIError, sa.exc.TimeoutError)):
            raise
        if "cannot contain NUL" in str(error):  # a name that is looked up; texts are stored bare
            msg = "a name has no NUL character: leave it out"
            raise InvalidInputError(msg) from error
        raise _translate(engine, error) from error
    except Exception as error:  # also what a library raises that was interrupted as it tidied up
        raise_interruption(error)
        if found := find_interruption(error, known):
            raise found from None
        raise


_LOOK = {
    True: "check the permissions of its files",
    False: "its server is read-only, or a standby; a full disk may be the reason",
}


def require_writable(connection: sa.Connection) -> None:
    """Refuse a server of PostgreSQL that takes no writes."""
    if connection.dialect.name == "postgresql" and connection.exec_driver_sql(_TAKES_NONE).scalar():
        name = connection.engine.url.render_as_string(hide_password=True)
        msg = f"the store {name} cannot be written: {_LOOK[False]}"
        raise StoreReadOnlyError(msg)


_TAKES_NONE = (
    "SELECT current_setting('default_transaction_read_only') = 'on' OR pg_is_in_recovery()"
)


def _translate(engine: sa.Engine, error: DBAPIError | sa.exc.TimeoutError) -> StoreError:
    name, own = engine.url.render_as_string(hide_password=True), engine.dialect.name == "sqlite"
    if isinstance(error, sa.exc.TimeoutError):
        msg = f"all connections of this process to the store {name} are in use: try again"
        return StoreUnavailableError(msg)
    text, state = str(error.orig), find_state(error.orig)
    # The driver itself refuses more parameters than a statement can have.
    failed = "number of parameters" not in text if state is None else state.startswith(_AWAY)
    made: StoreError
    if state in (*ABORTED, _NO_LOCK) or (own and "locked" in text):
        made = StoreLockedError(f"the store {name} is busy: another process is writing; try again")
    elif state == _READ_ONLY or (own and "readonly" in text):
        made = StoreReadOnlyError(f"the store {name} cannot be written: {_LOOK[own]}")
    elif state == _DISK_FULL or (own and _FULL in text):
        made = build_disk_full_error(name)
    elif own and _UNOPENED in text:
        made = _explain_unopened(Path(str(engine.url.database)))
    elif own and any(sign in text for sign in _DAMAGED):
        msg = f"the store {name} is damaged ({_first_line(text)}): run crabpath doctor"
        made = StoreError(msg)
    elif failed and not own and isinstance(error, (OperationalError, InterfaceError)):
        reason = _first_line(text)
        msg = f"the store {name} cannot be reached ({reason}): is the database running?"
        if "FATAL:" in reason:  # from the server
            msg = f"the server of the store {name} refuses the connection ({reason})"
        made = StoreUnavailableError(msg)
    elif state == _NO_SCHEMA:
        msg = f"no schema of the search_path of {name} exists: create it, or name one that exists"
        made = StoreError(msg)
    else:
        made = StoreError(f"the store refused an operation: {_first_line(text)}")
    return made


def _explain_unopened(file: Path) -> StoreError:
    """Explain why SQLite cannot open a file: no room beside it, or a missing right."""
    if not can_make_files(file.parent):
        return build_disk_full_error(str(file))
    if not os.access(file.parent, os.X_OK) or os.access(file, os.F_OK):
        return StoreReadOnlyError(f"{file} cannot be opened: change its permissions")
    return StoreUnavailableError(f"{file} is not there: restore it, or check the path")


def can_make_files(directory: Path) -> bool:
    """Whether the disk has room for another file; True where that is not known."""
    try:
        disk = os.statvfs(directory)
    except (AttributeError, OSError):  # the former on Windows
        return True
    return disk.f_favail > 0 or disk.f_files == 0  # the latter where files are not counted


def build_disk_full_error(name: str) -> StoreFullError:
    """Build the error for a full disk."""
    return StoreFullError(f"the disk of {name} is full: make room; what was acknowledged is kept")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no detail"


# PostgreSQL names advisory locks by numbers; stores in other schemas have their own.
_SCHEMA = sa.func.hashtextextended(sa.func.concat("crabpath schema ", sa.func.current_schema()), 0)

# Of the transaction that holds the lock; the second is new in release 17.
_KEEP_OPEN = (
    "SELECT set_config(name, '0', true) FROM pg_settings "
    "WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)


def lock_schema(connection: sa.Connection) -> None:
    """Keep other processes from creating the tables until the transaction ends.

    Does nothing on SQLite, whose write transactions exclude each other.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA)))


@contextmanager
def process_lock(engine: sa.Engine, name: str, *, wait: bool) -> Iterator[bool]:
    """Keep other processes from doing the same work; the lock ends with the process.

    ``name`` is the name of the work, such as ``"ingest"``. Yields whether the lock is held.
    """
    held = (
        _file_lock(engine, name, wait)
        if engine.dialect.name == "sqlite"
        else _advisory_lock(engine, name, wait)
    )
    with held as is_held:
        yield is_held


@contextmanager
def _file_lock(engine: sa.Engine, name: str, wait: bool) -> Iterator[bool]:  # noqa: FBT001
    ending = "lock" if name == "ingest" else f"{name}.lock"
    lock = FileLock(f"{engine.url.database}.{ending}", mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        yield False
        return
    except OSError as error:
        raise _explain_unwritten(Path(lock.lock_file).parent, error) from error
    try:
        yield True
    finally:
        lock.release()


@contextmanager
def _advisory_lock(engine: sa.Engine, name: str, wait: bool) -> Iterator[bool]:  # noqa: FBT001
    """Hold an advisory lock of an open transaction, for which even a pooler keeps its connection.

    ``name`` is the name of the work. If ``wait``, the lock is polled for until it is free: waiting
    in the server would take a connection, too. Yields whether it is held.
    """
    apart = engine.execution_options(isolation_level="READ COMMITTED")
    with apart.connect() as connection:
        own = sa.func.concat(f"crabpath {name} ", sa.func.current_schema())
        acquire = sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtextextended(own, 0)))
        while not (held := bool(connection.scalar(acquire))) and wait:
            connection.rollback()
            sleep(_POLL)
        if held:
            connection.exec_driver_sql(_KEEP_OPEN)
        yield held
        connection.commit()  # fails where the lock was lost with the connection


OWN_TABLES = (
    "SELECT oid::regclass::text FROM pg_class WHERE starts_with(relname, 'crabpath_') "
    "AND relkind = 'r' AND pg_table_is_visible(oid)"
)
"""Statement that names the tables of a store."""

_TRIES = 3
_NEXT = "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS xid) AS text)"
# What a transaction may still read is kept when a table is written anew.
_MAY_READ = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND backend_type = 'client backend' AND age(backend_xmin) > age(CAST(:deleted AS xid))"
)
# The index of a table's primary key, and what gives all its columns the types that they have.
_PARTS = sa.text(
    "SELECT (SELECT quote_ident(relname) FROM pg_index JOIN pg_class ON oid = indexrelid "
    "WHERE indrelid = attrelid AND indisprimary), string_agg(format('ALTER %I TYPE %s', attname, "
    "format_type(atttypid, atttypmod) || coalesce(' COLLATE ' || "
    "CAST(CAST(nullif(attcollation, 0) AS regcollation) AS text), '')), ', ') "
    "FROM pg_attribute WHERE attrelid = CAST(:name AS regclass) AND attnum > 0 "
    "AND NOT attisdropped GROUP BY attrelid"
)


def rewrite_tables(engine: sa.Engine, time_limit: float) -> bool:
    """Write all tables of a store anew, with indexes and statistics; return whether it could.

    Each table is waited for in short turns, a fifth of ``time_limit`` seconds altogether, so that
    queries run between them. False if other connections use a table all the time, or may still read
    deleted rows.
    """
    with translate_database_errors(engine), engine.begin() as connection:
        names = connection.exec_driver_sql(OWN_TABLES).scalars().all()
        deleted = connection.exec_driver_sql(_NEXT).scalar_one()
    patience = time_limit / 5
    return all(_rewrite_patiently(engine, name, deleted, patience) for name in names)


def _rewrite_patiently(engine: sa.Engine, name: str, deleted: str, patience: float) -> bool:
    for attempt in range(_TRIES):
        sleep(patience if attempt else 0)  # those that waited behind the last one go on
        try:
            with translate_database_errors(engine), engine.begin() as connection:
                limit = max(1, int(patience * 1000))
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {limit}")
                if not connection.scalar(_MAY_READ, {"deleted": deleted}):
                    _rewrite(connection, name)
                    return True
        except StoreLockedError:
            pass
    return False


def _rewrite(connection: sa.Connection, name: str) -> None:
    key, columns = connection.execute(_PARTS, {"name": name}).one()
    # Not VACUUM FULL: it is never part of a transaction, which alone limits its wait.
    connection.exec_driver_sql(f"CLUSTER {name} USING {key}")
    connection.exec_driver_sql(f"ALTER TABLE {name} SET WITHOUT CLUSTER")
    if connection.exec_driver_sql(f"TABLE {name} LIMIT 1").first() is None:
        # ANALYZE would leave its statistics; those of a column end with its type.
        connection.exec_driver_sql(f"ALTER TABLE {name} {columns}")
    connection.exec_driver_sql(f"ANALYZE {name}")
