"""Read-only access to a store: nothing is created, written or repaired."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from crabpath_retrievers.storage.catalog import Catalog
from crabpath_retrievers.storage.checks import Checks
from crabpath_retrievers.storage.engine import open_engine, translate_database_errors

_LOCK_TIMEOUT = 1.0  # seconds to wait for a lock, which is worth reporting soon


class ReadOnlyStore:
    """A graph store that is only read.

    Attributes:
        catalog: Reads of documents and queues.
        checks: Consistency checks.
    """

    def __init__(self, location: str | Path) -> None:
        """Prepare to read a directory or an SQLAlchemy URL; the first read opens it.

        Raises:
            ConfigurationError: The URL names a database other than SQLite or PostgreSQL.
            MissingExtraError: The driver of the database is not installed.
        """
        file = find_database_file(location)
        self._engine = open_engine(location) if file is None else _open_readonly_engine(file)
        self.catalog = Catalog(self)
        self.checks = Checks(self)

    @contextmanager
    def open_reader(self) -> Iterator[sa.Connection]:
        """A connection that cannot write."""
        with translate_database_errors(self._engine), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(postgresql_readonly=True)
            yield connection

    def flush(self) -> None:
        """Do nothing: a read-only store writes no turn records."""

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def find_database_file(location: str | Path) -> Path | None:
    """The file of an SQLite store, by its directory or URL; None for another database."""
    text = str(location)
    if "://" not in text:
        return Path(text) / "graph.sqlite"
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # the latter for an invalid port
        return None
    is_file = url.database not in {None, "", ":memory:"}
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" and is_file else None


def build_readonly_uri(file: Path) -> str:
    """URI with which SQLite reads a file without creating others beside it.

    Without a write-ahead log no process has the file open, so no shared-memory file is needed.
    """
    has_log = file.with_name(f"{file.name}-wal").exists()
    return f"{file.resolve().as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"


def _open_readonly_engine(file: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            build_readonly_uri(file), uri=True, timeout=_LOCK_TIMEOUT, check_same_thread=False
        )

    return sa.create_engine(f"sqlite:///{file}", creator=connect, poolclass=NullPool)
