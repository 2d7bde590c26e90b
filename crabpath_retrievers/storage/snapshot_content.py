"""What a snapshot holds: the rows of a namespace in the tables of what it has learned, packed."""

import json
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage import schema as s

_NODES = {
    s.overlay: ("source", "target"),
    s.counts: ("source", "target"),
    s.usage: ("node",),
    s.steps: ("region",),
}
_DEFAULTS = {s.usage: {"decay": 0.0}}  # of columns that older schemas lack
_TABLES = (*_NODES, s.episodes)
_QUICK = 1  # of zlib: the best level takes six times as long for a tenth less


class Content(NamedTuple):
    """What a namespace knew.

    Attributes:
        exponent: Its accumulated decay exponent.
        mind: What it knew of ranking, as JSON; None before it first learned.
        tables: Rows without the namespace, by name of the table.
    """

    exponent: float
    mind: str | None
    tables: dict[str, list[dict[str, Any]]]

    def nodes(self) -> set[int]:
        """Keys of all nodes that it speaks of."""
        return {
            row[name]
            for table, names in _NODES.items()
            for row in self.tables.get(table.name, ())
            for name in names
        }

    def rows(self, namespace: int, alive: set[int]) -> Iterator[tuple[sa.Table, list[Any]]]:
        """The rows to write, by table, of nodes that still exist; episodes wait for the index."""
        for table, names in _NODES.items():
            found = self.tables.get(table.name, [])  # one of an older schema lacks some
            yield (
                table,
                [
                    {**_DEFAULTS.get(table, {}), **row, "namespace": namespace}
                    for row in found
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


def packed(connection: sa.Connection, namespace: int, exponent: float, mind: str | None) -> bytes:
    """All that a namespace knows now, compressed."""
    tables = {}
    for table in _TABLES:
        columns = [column for column in table.c if column.name not in {"namespace", "indexed"}]
        query = sa.select(*columns).where(table.c.namespace == namespace)
        tables[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    data = {"exponent": exponent, "mind": mind, "tables": tables}
    return zlib.compress(to_json(data, bytes_mode="base64"), _QUICK)


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
