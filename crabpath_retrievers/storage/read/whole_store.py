"""Export of all rows of a store or of one namespace, from one consistent state.

Consistency checks of the store for the doctor: reads of whole tables.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.changes.archive import Block, Row
from crabpath_retrievers.errors import NotFoundError, StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import (
    contents,
    edges,
    episodes,
    feedback,
    meta,
    metadata,
    namespaces,
    nodes,
    notes,
    overlay,
    staging,
)
from crabpath_retrievers.storage.sql_tools import ReadableStore, split_batches

TABLE_PREFIX = "crabpath_"
_AT_ONCE = 1000  # rows in memory
# Queued work of one store; a copy begins with empty queues.
_UNFINISHED = frozenset({"staging", "index_deletions"})
# Metadata that is not copied to another store.
LOCAL_META = ("schema_version", "origin", "vectors")


def list_tables() -> dict[str, sa.Table]:
    """The exported tables by their names without prefix."""
    found = {table.name.removeprefix(TABLE_PREFIX): table for table in s.metadata.sorted_tables}
    return {name: found[name] for name in sorted(found) if name not in _UNFINISHED}


class TableRows(NamedTuple):
    """Rows of one table: its short name, the table, and conditions on the rows."""

    name: str
    table: sa.Table
    where: Sequence[sa.ColumnElement[bool]] = ()


class Dump:
    """One consistent state of a store, read table by table in blocks of rows."""

    def __init__(self, connection: sa.Connection) -> None:
        """Read on ``connection``, all statements of which see the same state."""
        self._connection = connection

    def require_finished(self) -> None:
        """Refuse a store with an unfinished ingest.

        Raises:
            StoreError: An ingest was interrupted or is running.
        """
        # Work for the vector index does not matter: a copy fills an index of its own.
        waits = sa.exists(sa.select(s.staging.c.id).where(s.staging.c.operation != "index"))
        if self._connection.scalar(sa.select(waits)):
            msg = "documents are half added: open the memory once, which finishes it, and try again"
            raise StoreError(msg)

    def meta(self) -> dict[str, str]:
        """Metadata of the store by name."""
        return {name: value for name, value in self._connection.execute(sa.select(s.meta))}

    def select_all(self) -> list[TableRows]:
        """Select all rows of all tables."""
        own = (s.meta.c.name.not_in(LOCAL_META),)
        return [TableRows(name, t, own if t is s.meta else ()) for name, t in list_tables().items()]

    def select_namespace(self, name: str) -> list[TableRows]:
        """Select all rows of one namespace, each table before those that refer to it.

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
        feedback_ids = sa.select(s.feedback.c.id).where(s.feedback.c.namespace == name)
        which = {
            "namespaces": s.namespaces.c.key == key,
            "nodes": s.nodes.c.owner == key,
            "contents": s.contents.c.node.in_(own_nodes),
            "feedback": s.feedback.c.namespace == name,
            "consumed_turns": s.consumed_turns.c.feedback.in_(feedback_ids),
        }
        known = list_tables()
        found = [TableRows(n, known[n], (where,)) for n, where in which.items()]
        rest = [known[name] for name in NAMESPACE_TABLES if name not in which]
        short = {table.name: n for n, table in known.items()}
        return found + [TableRows(short[t.name], t, (t.c.namespace == key,)) for t in rest]

    def counts(self, selections: Sequence[TableRows]) -> dict[str, int]:
        """Number of rows by table."""
        found = {}
        for name, table, where in selections:
            query = sa.select(sa.func.count()).select_from(table).where(*where)
            found[name] = self._connection.scalar(query) or 0
        return found

    def rows(self, selection: TableRows) -> Iterator[list[Row]]:
        """Yield the rows in blocks, in order of the primary key."""
        table = selection.table
        query = sa.select(table).where(*selection.where).order_by(*table.primary_key.columns)
        streamed = query.execution_options(yield_per=_AT_ONCE)
        with self._connection.execute(streamed) as result:
            # Plain strings: serialisation of SQLAlchemy's quoted names is seven times slower.
            names = [str(column.name) for column in table.c]
            for block in result.partitions(_AT_ONCE):
                yield [dict(zip(names, row, strict=True)) for row in block]

    def blocks(self, selections: Sequence[TableRows]) -> Iterator[Block]:
        """Yield blocks of rows of several tables, table by table."""
        for selection in selections:
            for rows in self.rows(selection):
                yield selection.name, rows

    def names(self, keys: set[int]) -> dict[int, str]:
        """Ids of nodes by key."""
        found: dict[int, str] = {}
        for part in split_batches(sorted(keys)):
            query = sa.select(s.nodes.c.key, s.nodes.c.id).where(s.nodes.c.key.in_(part))
            found |= {key: name for key, name in self._connection.execute(query)}
        return found

    def get_last_keys(self) -> dict[str, int]:
        """Highest key that each table with generated keys has assigned, also to deleted rows."""
        found = {}
        for name, table in list_tables().items():
            key = table.autoincrement_column
            if key is not None:
                highest = self._connection.scalar(sa.select(sa.func.max(key))) or 0
                found[name] = max(highest, self._last_assigned_key(table))
        return found

    def _last_assigned_key(self, table: sa.Table) -> int:
        """The highest key that the database has assigned; 0 before the first."""
        if self._connection.dialect.name == "sqlite":
            query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
            return self._connection.scalar(query, {"name": table.name}) or 0
        column = table.autoincrement_column
        assert column is not None  # noqa: S101  checked by the caller
        sequence = self._connection.scalar(
            sa.select(sa.func.pg_get_serial_sequence(table.name, column.name))
        )
        given = sa.text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")
        return self._connection.scalar(given) or 0


NAMESPACE_TABLES = (
    *("namespaces", "nodes", "contents", "notes", "overlay", "weight_changes", "pair_counts"),
    *("usage", "transitions", "episodes", "turns", "feedback", "consumed_turns"),
    "feedback_effects",
)
"""Tables in the archive of a namespace, in the order in which they are written.

Snapshots and the journal are left out: they refer to rows by the keys of their own store.
"""


_KEYS_OF_TEXT = {"sqlite": "rowid", "postgresql": "node"}


class ChunkLevel(NamedTuple):
    """A document chunk: its key, its id and the stored level of the hub that it is (0: none)."""

    key: int
    id: str
    level: int


class FeedbackBacklog(NamedTuple):
    """Number of waiting feedback, time of the oldest in epoch seconds, number of refused."""

    waiting: int
    since: float | None
    refused: int


class Checks:
    """Reads whose cost grows with the store."""

    def __init__(self, store: ReadableStore) -> None:
        """Read from ``store``."""
        self._store = store

    def find_damage(self) -> str | None:
        """The error that SQLite finds in its file; None for an intact file and on PostgreSQL."""
        with self._store.open_reader() as connection:
            if connection.dialect.name != "sqlite":
                return None
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        return None if found == "ok" else str(found)

    def find_missing_tables(self) -> list[str]:
        """Names of tables of this schema version that the store lacks."""
        wanted = {*metadata.tables, "crabpath_fulltext"}
        with self._store.open_reader() as connection:
            return sorted(wanted - set(sa.inspect(connection).get_table_names()))

    def chunks(self) -> list[ChunkLevel]:
        """All document chunks."""
        query = sa.select(nodes.c.key, nodes.c.id, nodes.c.level).where(nodes.c.owner == 0)
        with self._store.open_reader() as connection:
            return [ChunkLevel(*row) for row in connection.execute(query)]

    def get_fulltext_keys(self) -> set[int]:
        """Keys of the nodes in the full-text index."""
        with self._store.open_reader() as connection:
            key = _KEYS_OF_TEXT[connection.dialect.name]
            return set(connection.exec_driver_sql(f"SELECT {key} FROM crabpath_fulltext").scalars())

    def count_dangling_rows(self) -> dict[str, int]:
        """Number of rows, by table, that refer to a missing node."""
        alive = sa.select(nodes.c.key)
        lost = {
            edges: edges.c.source.not_in(alive) | edges.c.target.not_in(alive),
            # STOP edges have target 0.
            overlay: overlay.c.source.not_in(alive)
            | (overlay.c.target.not_in(alive) & (overlay.c.target != 0)),
            contents: contents.c.node.not_in(alive),
            nodes: nodes.c.key.not_in(sa.select(contents.c.node)),
        }
        with self._store.open_reader() as connection:
            found = {
                table.name: connection.scalar(
                    sa.select(sa.func.count()).select_from(table).where(condition)
                )
                for table, condition in lost.items()
            }
        return {name: count for name, count in found.items() if count}

    def count_isolated_chunks(self) -> int:
        """Number of document chunks without any structural edge."""
        touched = (nodes.c.key == edges.c.source, nodes.c.key == edges.c.target)
        alone = [~sa.exists().where(side) for side in touched]
        query = sa.select(sa.func.count()).select_from(nodes).where(nodes.c.owner == 0, *alone)
        with self._store.open_reader() as connection:
            return connection.scalar(query) or 0

    def count_other_dimensions(self, dimension: int) -> int:
        """Number of nodes whose vector has another dimension."""
        other = sa.func.length(nodes.c.embedding) != 2 * dimension  # half precision
        with self._store.open_reader() as connection:
            return connection.scalar(sa.select(sa.func.count()).where(other)) or 0

    def get_staged_ids(self) -> dict[str, set[str]]:
        """Ids in the ingest queue, by their operation."""
        found: dict[str, set[str]] = {}
        with self._store.open_reader() as connection:
            for name, operation in connection.execute(sa.select(staging.c.id, staging.c.operation)):
                found.setdefault(operation, set()).add(name)
        return found

    def meta(self) -> dict[str, str]:
        """Metadata of the store by name."""
        with self._store.open_reader() as connection:
            return {name: value for name, value in connection.execute(sa.select(meta))}

    def get_frozen_namespaces(self) -> list[str]:
        """Names of the frozen namespaces."""
        query = sa.select(namespaces.c.name).where(namespaces.c.frozen != 0)
        with self._store.open_reader() as connection:
            return list(connection.scalars(query.order_by(namespaces.c.name)))

    def count_open_feedback(self) -> FeedbackBacklog:
        """Counts of waiting and refused feedback."""
        of = feedback.c.status
        waits = sa.select(sa.func.count(), sa.func.min(feedback.c.created)).where(of == "waiting")
        refused = sa.select(sa.func.count()).where(of == "refused")
        with self._store.open_reader() as connection:
            count, since = connection.execute(waits).one()
            return FeedbackBacklog(count, since, connection.scalar(refused) or 0)

    def get_companion_ids(self, *, waiting: bool = False) -> dict[str, set[str]]:
        """Ids that the collections of episodes and notes must hold, by name of the collection.

        Args:
            waiting: Whether to include ids that are still queued for the index.
        """
        least = 0 if waiting else 1
        of_episodes = sa.select(episodes.c.namespace, episodes.c.id).where(
            episodes.c.indexed >= least
        )
        of_notes = (
            sa.select(notes.c.namespace, nodes.c.id)
            .join(nodes, nodes.c.key == notes.c.node)
            .where(notes.c.indexed >= least)
        )
        found: dict[str, set[str]] = {}
        with self._store.open_reader() as connection:
            for kind, query in (("episodes", of_episodes), ("notes", of_notes)):
                for namespace, name in connection.execute(query):
                    found.setdefault(f"{kind}-{namespace}", set()).add(name)
        return found
