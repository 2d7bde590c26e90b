"""What a snapshot holds: the rows of a namespace in the tables of what it has learned, packed."""

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
# A note as a whole: its rows, whose own columns tell them apart.
_NOTES = {
    s.nodes: s.notes.c.node == s.nodes.c.key,
    s.contents: s.notes.c.node == s.contents.c.node,
    s.notes: sa.true(),
}
_QUICK = 1  # of zlib: the best level takes six times as long for a tenth less


class Content(NamedTuple):
    """What a namespace knew.

    Attributes:
        exponent: Its accumulated decay exponent.
        model: Its ranking model as JSON; None before it first learned.
        tables: Rows without the namespace, by name of the table.
        notes: Rows of its notes, by name of the table.
    """

    exponent: float
    model: str | None
    tables: dict[str, list[dict[str, Any]]]
    notes: dict[str, list[dict[str, Any]]]

    def told(self, namespace: int) -> Iterator[tuple[sa.Table, list[Any]]]:
        """The rows of the notes to write, by table; their vectors wait for the index."""
        here = {"owner": namespace, "namespace": namespace, "indexed": 0}
        for table in _NOTES:
            rows = self.notes[table.name]
            fixed = {name: value for name, value in here.items() if name in table.c}
            yield table, [{**_binary(table, row), **fixed} for row in rows]

    def nodes(self) -> set[int]:
        """Keys of all nodes that it speaks of."""
        return {
            row[name]
            for table, names in _NODES.items()
            for row in self.tables[table.name]
            for name in names
        }

    def rows(self, namespace: int, alive: set[int]) -> Iterator[tuple[sa.Table, list[Any]]]:
        """The rows to write, by table, of nodes that still exist; episodes wait for the index."""
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


def _binary(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row with its binary values as they are stored."""
    return {
        name: urlsafe_b64decode(value) if isinstance(table.c[name].type, sa.LargeBinary) else value
        for name, value in row.items()
    }


def packed(connection: sa.Connection, namespace: int, exponent: float, model: str | None) -> bytes:
    """All that a namespace knows now, compressed."""
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
    return zlib.compress(to_json(data, bytes_mode="base64"), _QUICK)


def without_notes(data: bytes, keys: Container[int]) -> bytes:
    """What :func:`packed` gave without some of the notes."""
    content = unpacked(data)
    left = {
        table.name: [
            row
            for row in content.notes[table.name]
            if row[table.primary_key.columns[0].name] not in keys
        ]
        for table in _NOTES
    }
    return zlib.compress(to_json(content._replace(notes=left)._asdict()), _QUICK)


def unpacked(data: bytes) -> Content:
    """The inverse of :func:`packed`.

    Raises:
        StoreError: It is damaged.
    """
    try:
        return Content(**json.loads(zlib.decompress(data)))
    except (ValueError, TypeError, zlib.error) as error:
        msg = f"the snapshot is damaged ({error}): delete it, and restore another one"
        raise StoreError(msg) from error
