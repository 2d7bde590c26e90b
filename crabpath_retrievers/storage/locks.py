"""Keeping processes apart: one of them ingests into a store at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from filelock import FileLock, Timeout

# PostgreSQL names advisory locks by numbers; stores in other schemas have their own.
_INGEST = sa.func.hashtextextended(sa.func.concat("crabpath ingest ", sa.func.current_schema()), 0)
_SCHEMA = sa.func.hashtextextended(sa.func.concat("crabpath schema ", sa.func.current_schema()), 0)


def lock_schema(connection: sa.Connection) -> None:
    """Until the transaction ends, let nobody else create or migrate the tables.

    SQLite needs nothing: its transactions that write exclude each other.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA)))


@contextmanager
def ingest_lock(engine: sa.Engine, *, wait: bool) -> Iterator[bool]:
    """Keep other processes from ingesting; a process that dies lets go.

    Args:
        engine: Of the store; its connections commit by themselves.
        wait: Whether to wait while another process ingests.

    Yields:
        Whether the lock is held; always True with ``wait``.
    """
    held = _file(engine, wait) if engine.dialect.name == "sqlite" else _advisory(engine, wait)
    with held as is_held:
        yield is_held


@contextmanager
def _file(engine: sa.Engine, wait: bool) -> Iterator[bool]:  # noqa: FBT001
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
def _advisory(engine: sa.Engine, wait: bool) -> Iterator[bool]:  # noqa: FBT001
    acquire = sa.func.pg_advisory_lock if wait else sa.func.pg_try_advisory_lock
    with engine.connect() as connection:
        # The waiting form returns nothing once it holds the lock.
        held = connection.scalar(sa.select(acquire(_INGEST))) is not False
        try:
            yield held
        finally:
            if held:
                connection.execute(sa.select(sa.func.pg_advisory_unlock(_INGEST)))
