"""Writers of these vectors and of their tables, in a transaction of the graph store."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.parts.pgvector.tables import (
    DOCUMENTS,
    NEXT,
    create_index,
    create_tables,
    ensure_extension,
    find_dimension,
    find_extension,
    find_rows,
    format_vector,
    pack_vector,
    switch_tables,
)
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.database import lock_schema
from crabpath_retrievers.storage.sql_tools import open_driver_cursor, split_batches
from crabpath_retrievers.storage.write.transaction import Transaction

_BATCH = 500  # rows of one statement
_COPIED = 64  # rows from which COPY is used


def create_vector_tables(
    tx: Transaction, dimension: int | None = None, table: str = DOCUMENTS
) -> None:
    """Create the extension and the tables for vectors, unless they exist.

    Args:
        tx: The transaction.
        dimension: Dimension of the vectors; None creates only the extension.
        table: Table of the documents: the present or the next one.
    """
    lock_schema(tx.connection)
    extension = ensure_extension(tx.connection)
    if dimension is not None:
        create_tables(tx.connection, extension, dimension, table)


def switch_vector_tables(tx: Transaction) -> None:
    """Replace the table of the documents by that of the next index."""
    lock_schema(tx.connection)
    switch_tables(tx.connection)


def drop_next_vectors(tx: Transaction) -> None:
    """Delete the table of the next index."""
    tx.run(sa.text(f"DROP TABLE IF EXISTS {NEXT}"))


class VectorRow(NamedTuple):
    """A unit vector ``[d]`` with its id, the embedded text, and JSON-safe metadata to filter by."""

    id: str
    vector: Vector
    text: str
    metadata: Mapping[str, Any]


def put_vectors(tx: Transaction, given: Sequence[VectorRow], collection: str | None = None) -> None:
    """Add vectors, or replace those with the same id; the tables exist.

    Args:
        tx: The transaction.
        given: The vectors, with distinct ids.
        collection: Name of a collection of a namespace; None for the documents.
    """
    of_documents = collection in {None, NEXT}
    if len(given) >= _COPIED and of_documents:
        _copy_vectors(tx, given, collection)
        return
    table, rows_of = find_rows(collection)
    key, own = ("langchain_id", "") if of_documents else _COMPANION
    # The columns say what type a value has: no extension need be looked for.
    query = (
        f"INSERT INTO {table} ({key}, content, embedding, langchain_metadata) "
        f"VALUES {{}} ON CONFLICT ({key}) DO UPDATE SET content = excluded.content, "
        "embedding = excluded.embedding, langchain_metadata = excluded.langchain_metadata"
    )
    rows = (
        (row.id, row.text, format_vector(row.vector), json.dumps(row.metadata, ensure_ascii=False))
        for row in given
    )
    place = f"({own}%s, %s, %s, %s)"
    for part in split_batches(rows, _BATCH):
        values = [value for row in part for value in (*rows_of.values, *row)]
        _execute(tx.connection, query.format(", ".join([place] * len(part))), values)


def _copy_vectors(tx: Transaction, given: Sequence[VectorRow], collection: str | None) -> None:
    """Replace the vectors of many documents by COPY in its binary format.

    ``collection`` is the name of a collection of a namespace; None for the documents.
    """
    table, _ = find_rows(collection)
    delete_vectors(tx, [row.id for row in given], collection)
    query = (
        f"COPY {table} (langchain_id, content, embedding, langchain_metadata) "
        "FROM STDIN (FORMAT BINARY)"
    )
    with open_driver_cursor(tx.connection) as cursor, cursor.copy(query) as copy:
        for node, vector, text, metadata in given:
            document = json.dumps(metadata, ensure_ascii=False).encode()
            copy.write_row((node.encode(), text.encode(), pack_vector(vector), b"\x01" + document))


_COMPANION = ("collection, langchain_id", "%s, ")


def delete_vectors(
    tx: Transaction, ids: Sequence[str] | None, collection: str | None = None
) -> None:
    """Delete the vectors with these ids; unknown ids are ignored, None deletes all.

    ``collection`` is the name of a collection of a namespace; None for the documents.
    """
    table, own = find_rows(collection)
    if ids is None:
        _execute(tx.connection, f"DELETE FROM {table} WHERE {own.sql}", own.values)
        return
    query = f"DELETE FROM {table} WHERE {own.sql} AND langchain_id = ANY(%s::text[])"
    for part in split_batches(ids):
        _execute(tx.connection, query, [*own.values, part])


def delete_queued_vectors(tx: Transaction) -> None:
    """Delete the vectors of documents that are queued for it, and empty that queue."""
    if find_dimension(tx.connection) is not None:
        queue = s.index_deletions.name
        tx.run(sa.text(f"DELETE FROM {DOCUMENTS} WHERE langchain_id IN (SELECT id FROM {queue})"))
    tx.delete(s.index_deletions)


def _execute(connection: sa.Connection, query: str, values: Sequence[Any]) -> None:
    with open_driver_cursor(connection) as cursor:
        cursor.execute(query, values)


def drop_vector_index(tx: Transaction) -> None:
    """Drop the index of the documents: searches read all rows until it is built again."""
    tx.run(sa.text(f"DROP INDEX IF EXISTS {DOCUMENTS}_hnsw"))


def build_vector_index(tx: Transaction) -> None:
    """Build the index of the documents, unless it exists or there is no table."""
    extension, dimension = find_extension(tx.connection), find_dimension(tx.connection)
    if extension is not None and dimension is not None:
        create_index(tx.connection, extension, dimension)
