"""Reads of everything that a store holds, or that one namespace has learned, as of one moment."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.changes.archive import Block, Row
from crabpath_retrievers.errors import NotFoundError, StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts

PREFIX = "crabpath_"
_AT_ONCE = 1000  # rows in memory
# Queued work of one store; a copy begins with empty queues.
_UNFINISHED = frozenset({"staging", "index_deletions"})
# Of this very store; a copy has its own. What indexes hold is told by theirs.
OWN_META = ("schema_version", "origin", "vectors")


def tables() -> dict[str, sa.Table]:
    """The tables that a copy of a store holds, by their short names."""
    found = {table.name.removeprefix(PREFIX): table for table in s.metadata.sorted_tables}
    return {name: found[name] for name in sorted(found) if name not in _UNFINISHED}


class Selection(NamedTuple):
    """Rows of one table."""

    name: str
    table: sa.Table
    where: Sequence[sa.ColumnElement[bool]] = ()


class Dump:
    """A store as it is at one moment, read table by table, a few rows at a time."""

    def __init__(self, connection: sa.Connection) -> None:
        """Read on ``connection``, which sees one moment."""
        self._connection = connection

    def require_finished(self) -> None:
        """Refuse a store with documents half added.

        Raises:
            StoreError: An ingest was interrupted.
        """
        # What only an index waits for is nothing to a copy, which has an index of its own.
        waits = sa.exists(sa.select(s.staging.c.id).where(s.staging.c.operation != "index"))
        if self._connection.scalar(sa.select(waits)):
            msg = "documents are half added: open the memory once, which finishes it, and try again"
            raise StoreError(msg)

    def meta(self) -> dict[str, str]:
        """Facts about the store itself."""
        return {name: value for name, value in self._connection.execute(sa.select(s.meta))}

    def everything(self) -> list[Selection]:
        """All rows of all tables."""
        own = (s.meta.c.name.not_in(OWN_META),)
        return [Selection(name, t, own if t is s.meta else ()) for name, t in tables().items()]

    def of_namespace(self, name: str) -> list[Selection]:
        """All rows of what one namespace has learned, whose they are before what refers to them.

        Raises:
            NotFoundError: There is no such namespace.
        """
        key = self._connection.scalar(
            sa.select(s.namespaces.c.key).where(s.namespaces.c.name == name)
        )
        if key is None:
            msg = f"namespace {name!r} has neither asked nor learned anything: check its name"
            raise NotFoundError(msg)
        own_nodes = sa.select(s.nodes.c.key).where(s.nodes.c.owner == key)
        said = sa.select(s.feedback.c.id).where(s.feedback.c.namespace == name)
        which = {
            "namespaces": s.namespaces.c.key == key,
            "nodes": s.nodes.c.owner == key,
            "contents": s.contents.c.node.in_(own_nodes),
            "feedback": s.feedback.c.namespace == name,
            "consumed_turns": s.consumed_turns.c.feedback.in_(said),
        }
        known = tables()
        found = [Selection(n, known[n], (where,)) for n, where in which.items()]
        rest = [known[name] for name in OF_NAMESPACES if name not in which]
        short = {table.name: n for n, table in known.items()}
        return found + [Selection(short[t.name], t, (t.c.namespace == key,)) for t in rest]

    def counts(self, selections: Sequence[Selection]) -> dict[str, int]:
        """How many rows there are of each table."""
        found = {}
        for name, table, where in selections:
            query = sa.select(sa.func.count()).select_from(table).where(*where)
            found[name] = self._connection.scalar(query) or 0
        return found

    def rows(self, selection: Selection) -> Iterator[list[Row]]:
        """The rows, in the order of their keys, block by block."""
        table = selection.table
        query = sa.select(table).where(*selection.where).order_by(*table.primary_key.columns)
        streamed = query.execution_options(yield_per=_AT_ONCE)
        with self._connection.execute(streamed) as result:
            # As plain texts: SQLAlchemy's own kind makes writing them out seven times as slow.
            names = [str(column.name) for column in table.c]
            for block in result.partitions(_AT_ONCE):
                yield [dict(zip(names, row, strict=True)) for row in block]

    def blocks(self, selections: Sequence[Selection]) -> Iterator[Block]:
        """The rows of several tables, one after the other."""
        for selection in selections:
            for rows in self.rows(selection):
                yield selection.name, rows

    def names(self, keys: set[int]) -> dict[int, str]:
        """Ids of nodes by key."""
        found: dict[int, str] = {}
        for part in parts(sorted(keys)):
            query = sa.select(s.nodes.c.key, s.nodes.c.id).where(s.nodes.c.key.in_(part))
            found |= {key: name for key, name in self._connection.execute(query)}
        return found

    def last(self) -> dict[str, int]:
        """The last key that each table with keys of its own has given, used or not."""
        found = {}
        for name, table in tables().items():
            key = table.autoincrement_column
            if key is not None:
                highest = self._connection.scalar(sa.select(sa.func.max(key))) or 0
                found[name] = max(highest, self._given(table))
        return found

    def _given(self, table: sa.Table) -> int:
        """What the database remembers of the keys of a table that are gone."""
        if self._connection.dialect.name == "sqlite":
            query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
            return self._connection.scalar(query, {"name": table.name}) or 0
        column = table.autoincrement_column
        assert column is not None  # noqa: S101  the caller has looked
        sequence = self._connection.scalar(
            sa.select(sa.func.pg_get_serial_sequence(table.name, column.name))
        )
        given = sa.text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")
        return self._connection.scalar(given) or 0


OF_NAMESPACES = (
    *("namespaces", "nodes", "contents", "notes", "overlay", "weight_changes", "pair_counts"),
    *("usage", "transitions", "episodes", "turns", "feedback", "consumed_turns"),
    "feedback_effects",
)
"""What travels with a namespace, in the order in which it is written.

Snapshots stay: they name nodes, moves and lessons by the keys of their store. So does the journal.
"""
