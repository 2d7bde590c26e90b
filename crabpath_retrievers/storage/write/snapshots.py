"""Content of snapshots: an archive of the state of a namespace, compressed, with keys of nodes."""

import zlib
from base64 import urlsafe_b64decode
from collections.abc import Container
from typing import Any

import sqlalchemy as sa
from pydantic_core import from_json, to_json

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage.registry import (
    LOCAL_COLUMNS,
    NOTE_TABLES,
    SNAPSHOT_TABLES,
    TABLES,
    find_own_rows,
)
from crabpath_retrievers.storage.write.transaction import Transaction

SnapshotRows = dict[str, list[dict[str, Any]]]
"""Rows without the columns of their namespace, by table."""

_COMPRESSION_LEVEL = 1  # of zlib: the highest level is six times slower and saves a tenth


def read_snapshot(tx: Transaction, namespace: int, name: str) -> bytes:
    """Read and compress the learned state of a namespace."""
    own = find_own_rows(namespace, name)
    left_out = LOCAL_COLUMNS - {"key"}
    rows = {}
    for table in SNAPSHOT_TABLES:
        columns = [column for column in TABLES[table].c if column.name not in left_out]
        rows[table] = tx.dicts(sa.select(*columns).where(own[table]))
    return _compress(rows)


def _compress(rows: SnapshotRows) -> bytes:
    return zlib.compress(to_json(rows, bytes_mode="base64"), _COMPRESSION_LEVEL)


def decode_snapshot(data: bytes) -> SnapshotRows:
    """The inverse of :func:`read_snapshot`.

    Raises:
        StoreError: The content is damaged.
    """
    try:
        return parse_snapshot(zlib.decompress(data))
    except (ValueError, TypeError, LookupError, AttributeError, zlib.error) as error:
        msg = f"the snapshot is damaged ({error}): delete it, and restore another one"
        raise StoreError(msg) from error


def parse_snapshot(text: bytes) -> SnapshotRows:
    """Rows of a snapshot that is unpacked already."""
    found = from_json(text, allow_inf_nan=False)
    return {table: [_decode_row(table, row) for row in found[table]] for table in SNAPSHOT_TABLES}


def _decode_row(table: str, row: dict[str, Any]) -> dict[str, Any]:
    columns = TABLES[table].c
    return {
        name: urlsafe_b64decode(value) if isinstance(columns[name].type, sa.LargeBinary) else value
        for name, value in row.items()
    }


def remove_notes_from_snapshot(data: bytes, keys: Container[int]) -> bytes:
    """Remove the notes with these keys from compressed content."""
    rows = decode_snapshot(data)
    for table, column in NOTE_TABLES.items():
        rows[table] = [row for row in rows[table] if row[column] not in keys]
    return _compress(rows)
