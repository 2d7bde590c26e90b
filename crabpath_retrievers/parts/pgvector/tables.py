"""Tables of vectors in PostgreSQL, by its extension ``vector`` (pgvector 0.8 or later).

The table of the documents has the columns of a table of LangChain's ``PGVectorStore``, so that it
can be opened with it. Episodes and notes of all namespaces share a second table, so that nobody
finds the questions of users among the documents.
"""

import re
from struct import pack
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql

from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import ConfigurationError

DOCUMENTS = "crabpath_vectors"
"""Table of the vectors of documents."""

NEXT = "crabpath_next_vectors"
"""Table of those of another embedder, while it is changed; also the name of their collection."""

COMPANIONS = "crabpath_companion_vectors"
"""Table of the vectors of episodes and notes, with a column for the collection of a namespace."""

_OLDEST = (0, 8)  # has iterative scans, without which a filter returns fewer than k hits
_EXTENSION = sa.func.hashtextextended("crabpath extension", 0)
_MAX_INDEXED = 2000  # dimensions of the type vector that HNSW takes
_MAX_DIMENSION = 4000  # of the type halfvec
_quote = postgresql.dialect().identifier_preparer.quote_identifier  # type: ignore[no-untyped-call]


class Condition(NamedTuple):
    """A condition on rows: SQL with ``%s`` for each of the values."""

    sql: str
    values: tuple[Any, ...] = ()


def find_rows(collection: str | None) -> tuple[str, Condition]:
    """Find the table and the condition on rows of a collection; None is that of the documents."""
    if collection in {None, NEXT}:
        return collection or DOCUMENTS, Condition("true")
    return COMPANIONS, Condition("collection = %s", (collection,))


class Extension(NamedTuple):
    """The installed extension: its schema, which need not be on the search path, and version."""

    schema: str
    version: str

    def name(self, what: str) -> str:
        """Qualify a type or class of operators by the schema of the extension."""
        return f"{_quote(self.schema)}.{what}"


class VectorType(NamedTuple):
    """Column type and distance of one table's vectors, as SQL expressions.

    Attributes:
        dimension: Of the vectors.
        stored: The indexed expression over the column ``embedding``.
        given: The query vector, a parameter of the driver.
        operator: The cosine distance.
        operators: Class of operators of the index.
    """

    dimension: int
    stored: str
    given: str
    operator: str
    operators: str

    @property
    def distance(self) -> str:
        """Cosine distance of a row and the query vector, in [0, 2]."""
        return f"{self.stored} {self.operator} {self.given}"

    @classmethod
    def make(cls, extension: Extension, dimension: int) -> "VectorType":
        """Type for vectors of a dimension; HNSW takes large ones in half precision."""
        operator = f"OPERATOR({_quote(extension.schema)}.<=>)"
        if dimension <= _MAX_INDEXED:
            given, operators = extension.name("vector"), extension.name("vector_cosine_ops")
            return cls(dimension, "embedding", f"%s::{given}", operator, operators)
        half = f"{extension.name('halfvec')}({dimension})"
        operators = extension.name("halfvec_cosine_ops")
        return cls(dimension, f"(embedding::{half})", f"%s::{half}", operator, operators)


def format_vector(vector: Vector) -> str:
    """Format a vector ``[d]`` as pgvector reads it."""
    return to_json(vector.tolist()).decode()


def pack_vector(vector: Vector) -> bytes:
    """Pack a vector ``[d]`` for pgvector: dimension, zero, big-endian floats."""
    return pack(">HH", vector.size, 0) + vector.astype(">f4").tobytes()


def find_extension(connection: sa.Connection) -> Extension | None:
    """The installed extension; None without it."""
    query = (
        "SELECT nspname, extversion FROM pg_extension e "
        "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE extname = 'vector'"
    )
    row = connection.execute(sa.text(query)).first()
    return None if row is None else Extension(*row)


def ensure_extension(connection: sa.Connection) -> Extension:
    """Install the extension, unless it is there."""
    if find_extension(connection) is None:
        # Stores in other schemas of the database may be about to create it.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_EXTENSION)))
    if (found := find_extension(connection)) is None:
        try:
            # Not in the schema of this store, with which others would lose it.
            connection.execute(sa.text("CREATE EXTENSION vector SCHEMA public"))
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise
            reason = str(error.orig).strip().splitlines()[0]
            msg = (
                f"the database has no extension vector ({reason}): install pgvector on the server "
                "and run CREATE EXTENSION vector in this database as its owner or a superuser"
            )
            raise ConfigurationError(msg) from error
        found = find_extension(connection)
        assert found is not None  # noqa: S101
    if tuple(map(int, re.findall(r"\d+", found.version)[:2])) < _OLDEST:
        msg = (
            f"the extension vector has version {found.version}, and 0.8 or later is needed: "
            "upgrade pgvector and run ALTER EXTENSION vector UPDATE"
        )
        raise ConfigurationError(msg)
    return found


def find_dimension(connection: sa.Connection, table: str = DOCUMENTS) -> int | None:
    """Dimension of the vectors in a table and its companions; None before there are tables."""
    query = (
        "SELECT atttypmod FROM pg_attribute "
        "WHERE attrelid = to_regclass(:table) AND attname = 'embedding'"
    )
    found: int | None = connection.scalar(sa.text(query), {"table": table})
    return found


def create_tables(
    connection: sa.Connection, extension: Extension, dimension: int, table: str = DOCUMENTS
) -> None:
    """Create a table of documents, and that of episodes and notes unless it exists.

    ``dimension`` is that of the vectors; ``table`` names the table of documents.
    """
    if dimension > _MAX_DIMENSION:
        msg = (
            f"vectors of dimension {dimension} do not fit into pgvector, whose index takes "
            f"{_MAX_DIMENSION}: use an embedder with fewer, or a Chroma server for the vectors"
        )
        raise ConfigurationError(msg)
    if find_dimension(connection, table) is not None:
        return
    columns = _list_columns(f"{extension.name('vector')}({dimension})")
    connection.exec_driver_sql(f"CREATE TABLE {table} (langchain_id text PRIMARY KEY, {columns})")
    if table == DOCUMENTS:
        _create_companions(connection, columns)
    create_index(connection, extension, dimension, table)


def switch_tables(connection: sa.Connection) -> None:
    """Replace the table of documents by the next one, with empty companions."""
    extension, dimension = find_extension(connection), find_dimension(connection, NEXT)
    for table in (DOCUMENTS, COMPANIONS):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    if extension is None or dimension is None:  # a memory without documents
        return
    connection.exec_driver_sql(f"ALTER TABLE {NEXT} RENAME TO {DOCUMENTS}")
    for ending in ("pkey", "hnsw"):
        connection.exec_driver_sql(f"ALTER INDEX {NEXT}_{ending} RENAME TO {DOCUMENTS}_{ending}")
    _create_companions(connection, _list_columns(f"{extension.name('vector')}({dimension})"))


def create_index(
    connection: sa.Connection, extension: Extension, dimension: int, table: str = DOCUMENTS
) -> None:
    """Create the index of the table of documents ``table``, unless it exists.

    ``dimension`` is that of the vectors.
    """
    kind = VectorType.make(extension, dimension)
    index = f"CREATE INDEX IF NOT EXISTS {table}_hnsw ON {table} USING hnsw"
    connection.exec_driver_sql(
        f"{index} ({kind.stored} {kind.operators}) WITH (ef_construction = 128)"
    )


def _list_columns(kind: str) -> str:
    return f"content text NOT NULL, embedding {kind} NOT NULL, langchain_metadata jsonb NOT NULL"


def _create_companions(connection: sa.Connection, columns: str) -> None:
    # Without HNSW: its filtered scan would miss the few rows of one namespace among many others.
    connection.exec_driver_sql(
        f"CREATE TABLE {COMPANIONS} (collection text, langchain_id text, {columns}, "
        "PRIMARY KEY (collection, langchain_id))"
    )
