"""Writers of vectors that are kept in the database of the graph."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import vectors as v
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.engine import lock_schema
from crabpath_retrievers.storage.sql_tools import open_driver_cursor, split_batches
from crabpath_retrievers.storage.vector_tables import (
    DOCUMENTS,
    NEXT,
    create_index,
    create_tables,
    drop_index,
    ensure_extension,
    find_dimension,
    find_extension,
    find_rows,
    format_vector,
    pack_vector,
    switch_tables,
)
from crabpath_retrievers.storage.write.transaction import Transaction

_BATCH = 500  # rows of one statement
_COPIED = 64  # rows from which COPY is used


def create_vector_tables(tx: Transaction, change: v.CreateVectorTables) -> None:
    """Create the extension and the tables, unless they exist."""
    lock_schema(tx.connection)
    extension = ensure_extension(tx.connection)
    if change.dimension is not None:
        table = NEXT if change.next else DOCUMENTS
        create_tables(tx.connection, extension, change.dimension, table)


def switch_vector_tables(tx: Transaction, _change: v.SwitchVectorTables) -> None:
    """Put the next table of documents in the place of the other."""
    lock_schema(tx.connection)
    switch_tables(tx.connection)


def drop_next_vectors(tx: Transaction, _change: v.DropNextVectors) -> None:
    """Delete the next table of documents."""
    tx.run(sa.text(f"DROP TABLE IF EXISTS {NEXT}"))


def put_vectors(tx: Transaction, change: v.PutVectors) -> None:
    """Add or replace vectors."""
    if len(change.ids) >= _COPIED and change.collection in {None, NEXT}:
        _copy_vectors(tx, change)
        return
    table, rows_of = find_rows(change.collection)
    key, own = ("langchain_id", "") if change.collection in {None, NEXT} else _COMPANION
    # The columns say what type a value has: no extension need be looked for.
    query = (
        f"INSERT INTO {table} ({key}, content, embedding, langchain_metadata) "
        f"VALUES {{}} ON CONFLICT ({key}) DO UPDATE SET content = excluded.content, "
        "embedding = excluded.embedding, langchain_metadata = excluded.langchain_metadata"
    )
    rows = zip(
        change.ids,
        change.texts,
        map(format_vector, change.vectors),
        (json.dumps(metadata, ensure_ascii=False) for metadata in change.metadatas),
        strict=True,
    )
    place = f"({own}%s, %s, %s, %s)"
    for part in split_batches(rows, _BATCH):
        values = [value for row in part for value in (*rows_of.values, *row)]
        _execute(tx.connection, query.format(", ".join([place] * len(part))), values)


def _copy_vectors(tx: Transaction, change: v.PutVectors) -> None:
    """Replace the vectors of many documents by COPY in its binary format."""
    table, _ = find_rows(change.collection)
    delete_vectors(tx, v.DeleteVectors(change.ids, change.collection))
    query = (
        f"COPY {table} (langchain_id, content, embedding, langchain_metadata) "
        "FROM STDIN (FORMAT BINARY)"
    )
    rows = zip(change.ids, change.texts, change.vectors, change.metadatas, strict=True)
    with open_driver_cursor(tx.connection) as cursor, cursor.copy(query) as copy:
        for node, text, vector, metadata in rows:
            document = json.dumps(metadata, ensure_ascii=False).encode()
            copy.write_row((node.encode(), text.encode(), pack_vector(vector), b"\x01" + document))


_COMPANION = ("collection, langchain_id", "%s, ")


def delete_vectors(tx: Transaction, change: v.DeleteVectors) -> None:
    """Delete vectors, or a whole collection."""
    table, own = find_rows(change.collection)
    if change.ids is None:
        _execute(tx.connection, f"DELETE FROM {table} WHERE {own.sql}", own.values)
        return
    query = f"DELETE FROM {table} WHERE {own.sql} AND langchain_id = ANY(%s::text[])"
    for part in split_batches(change.ids):
        _execute(tx.connection, query, [*own.values, part])


def delete_queued_vectors(tx: Transaction, _change: v.DeleteQueuedVectors) -> None:
    """Delete the vectors of removed documents."""
    if find_dimension(tx.connection) is not None:
        queue = s.index_deletions.name
        tx.run(sa.text(f"DELETE FROM {DOCUMENTS} WHERE langchain_id IN (SELECT id FROM {queue})"))
    tx.delete(s.index_deletions)


def _execute(connection: sa.Connection, query: str, values: Sequence[Any]) -> None:
    with open_driver_cursor(connection) as cursor:
        cursor.execute(query, values)


def defer_indexes(tx: Transaction, _change: c.DeferIndexes) -> None:
    """Drop the indexes that are faster built afterwards."""
    tx.fulltext.defer(tx.connection)
    if tx.connection.dialect.name == "postgresql" and find_dimension(tx.connection) is not None:
        drop_index(tx.connection)


def build_indexes(tx: Transaction, _change: c.BuildIndexes) -> None:
    """Build the indexes that are missing."""
    tx.fulltext.complete(tx.connection)
    if tx.connection.dialect.name == "postgresql":
        dimension = find_dimension(tx.connection)
        if dimension is not None:
            extension = find_extension(tx.connection)
            assert extension is not None  # noqa: S101  the tables exist
            create_index(tx.connection, extension, dimension)
