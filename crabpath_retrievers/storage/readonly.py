"""Opening a store to look at it: nothing is created, migrated or written, whatever is found."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from crabpath_retrievers.storage.catalog import Catalog
from crabpath_retrievers.storage.checks import Checks
from crabpath_retrievers.storage.engine import open_engine, translated_errors

_PATIENCE = 1.0  # seconds to wait for a lock: whoever looks wants to be told of it


class ReadOnlyStore:
    """A graph store as it stands.

    Attributes:
        catalog: Documents, staged work.
        checks: Whether what is stored fits together.
    """

    def __init__(self, location: str | Path) -> None:
        """Look at a directory or an SQLAlchemy URL; it is opened with the first read.

        Raises:
            ConfigurationError: The URL names a database other than SQLite or PostgreSQL.
            MissingExtraError: The driver of the database is not installed.
        """
        file = database_file(location)
        self._engine = open_engine(location) if file is None else _looking_at(file)
        self.catalog = Catalog(self)
        self.checks = Checks(self)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that cannot write."""
        with translated_errors(self._engine), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(postgresql_readonly=True)
            yield connection

    def settle(self) -> None:
        """Nothing of its own waits to be written."""

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def database_file(location: str | Path) -> Path | None:
    """The file of an SQLite store, by its directory or URL; None for another database."""
    text = str(location)
    if "://" not in text:
        return Path(text) / "graph.sqlite"
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):  # the latter for a port that is no number
        return None
    held = url.database not in {None, "", ":memory:"}
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" and held else None


def sqlite_uri(file: Path) -> str:
    """URI under which SQLite reads a file and makes none beside it.

    Without a write-ahead log nobody has it open: then no shared memory is needed to read it.
    """
    whole = file.with_name(f"{file.name}-wal").exists()
    return f"{file.resolve().as_uri()}?mode=ro{'' if whole else '&immutable=1'}"


def _looking_at(file: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            sqlite_uri(file), uri=True, timeout=_PATIENCE, check_same_thread=False
        )

    return sa.create_engine(f"sqlite:///{file}", creator=connect, poolclass=NullPool)
