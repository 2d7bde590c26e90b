"""Content of snapshots: the learned rows and the notes of a namespace, compressed."""

import json
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage import schema as s

_NODES = {
    s.overlay: ("source", "target"),
    s.pair_counts: ("source", "target"),
    s.usage: ("node",),
    s.transitions: ("region",),
}
_TABLES = (*_NODES, s.episodes)
# The tables of notes, each with the condition that joins it to ``notes``.
_NOTES = {
    s.nodes: s.notes.c.node == s.nodes.c.key,
    s.contents: s.notes.c.node == s.contents.c.node,
    s.notes: sa.true(),
}
_COMPRESSION_LEVEL = 1  # of zlib: the highest level is six times slower and saves a tenth


class SnapshotContent(NamedTuple):
    """Learned state of a namespace.

    Attributes:
        exponent: Its accumulated decay exponent.
        model: Its ranking model as JSON; None before it first learned.
        tables: Rows without their namespace, by name of the table.
        notes: Rows of its notes, by name of the table.
    """

    exponent: float
    model: str | None
    tables: dict[str, list[dict[str, Any]]]
    notes: dict[str, list[dict[str, Any]]]

    def note_rows(self, namespace: int) -> Iterator[tuple[sa.Table, list[Any]]]:
        """Rows of the notes to write, by table; they are queued for the index."""
        here = {"owner": namespace, "namespace": namespace, "indexed": 0}
        for table in _NOTES:
            rows = self.notes[table.name]
            fixed = {name: value for name, value in here.items() if name in table.c}
            yield table, [{**_decode_binary(table, row), **fixed} for row in rows]

    def nodes(self) -> set[int]:
        """Keys of all nodes that the rows refer to."""
        return {
            row[name]
            for table, names in _NODES.items()
            for row in self.tables[table.name]
            for name in names
        }

    def rows(self, namespace: int, alive: set[int]) -> Iterator[tuple[sa.Table, list[Any]]]:
        """Rows to write, by table, without rows of deleted nodes; episodes are to be indexed."""
        for table, names in _NODES.items():
            yield (
                table,
                [
                    {**row, "namespace": namespace}
                    for row in self.tables[table.name]
                    if all(row[name] in alive for name in names)
                ],
            )
        yield (
            s.episodes,
            [
                {
                    **row,
                    "namespace": namespace,
                    "embedding": urlsafe_b64decode(row["embedding"]),
                    "indexed": 0,
                }
                for row in self.tables[s.episodes.name]
            ],
        )


def _decode_binary(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row with decoded binary values."""
    return {
        name: urlsafe_b64decode(value) if isinstance(table.c[name].type, sa.LargeBinary) else value
        for name, value in row.items()
    }


def encode_snapshot(
    connection: sa.Connection, namespace: int, exponent: float, model: str | None
) -> bytes:
    """Read and compress the learned state of a namespace."""
    tables = {}
    for table in _TABLES:
        columns = [column for column in table.c if column.name not in {"namespace", "indexed"}]
        query = sa.select(*columns).where(table.c.namespace == namespace)
        tables[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    notes = {}
    for table, joined in _NOTES.items():
        query = sa.select(table).where(joined, s.notes.c.namespace == namespace)
        notes[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    data = {"exponent": exponent, "model": model, "tables": tables, "notes": notes}
    return zlib.compress(to_json(data, bytes_mode="base64"), _COMPRESSION_LEVEL)


def remove_notes_from_snapshot(data: bytes, keys: Container[int]) -> bytes:
    """Remove the notes with these keys from compressed content."""
    content = decode_snapshot(data)
    kept = {
        table.name: [
            row
            for row in content.notes[table.name]
            if row[table.primary_key.columns[0].name] not in keys
        ]
        for table in _NOTES
    }
    return zlib.compress(to_json(content._replace(notes=kept)._asdict()), _COMPRESSION_LEVEL)


def decode_snapshot(data: bytes) -> SnapshotContent:
    """The inverse of :func:`encode_snapshot`.

    Raises:
        StoreError: The content is damaged.
    """
    try:
        return SnapshotContent(**json.loads(zlib.decompress(data)))
    except (ValueError, TypeError, zlib.error) as error:
        msg = f"the snapshot is damaged ({error}): delete it, and restore another one"
        raise StoreError(msg) from error
