"""Locks between processes: one creates the tables, and one ingests, at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from filelock import FileLock, Timeout

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
