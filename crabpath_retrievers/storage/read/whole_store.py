"""Reads of whole tables: rows to export, from one consistent state, and checks of the doctor."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.changes.archive import Block, Row
from crabpath_retrievers.errors import NotFoundError, StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.read.notes import IS_SEARCHED
from crabpath_retrievers.storage.registry import (
    EXPORTED,
    LOCAL_META,
    TABLES,
    find_own_rows,
    list_orphans,
)
from crabpath_retrievers.storage.schema import contents, edges, feedback, namespaces, nodes, staging
from crabpath_retrievers.storage.sql_tools import Queries, select_in

_AT_ONCE = 1000  # rows in memory


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
        return [TableRows(name, t, own if t is s.meta else ()) for name, t in EXPORTED.items()]

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
        own = find_own_rows(key, name).items()
        return [TableRows(table, TABLES[table], (where,)) for table, where in own]

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
        query = sa.select(s.nodes.c.key, s.nodes.c.id)
        rows = select_in(self._connection, query, s.nodes.c.key, sorted(keys))
        return {key: name for key, name in rows}

    def get_last_keys(self) -> dict[str, int]:
        """Highest key that each table with generated keys has assigned, also to deleted rows."""
        found = {}
        for name, table in EXPORTED.items():
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


class Checks(Queries):
    """Reads whose cost grows with the store."""

    def find_damage(self) -> str | None:
        """The error that SQLite finds in its file; None for an intact file and on PostgreSQL."""
        with self._store.connect() as connection:
            if connection.dialect.name != "sqlite":
                return None
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        return None if found == "ok" else str(found)

    def find_missing_tables(self) -> list[str]:
        """Names of tables of this schema version that the store lacks."""
        wanted = {*s.metadata.tables, "crabpath_fulltext"}
        with self._store.connect() as connection:
            return sorted(wanted - set(sa.inspect(connection).get_table_names()))

    def chunks(self) -> list[ChunkLevel]:
        """All document chunks."""
        query = sa.select(nodes.c.key, nodes.c.id, nodes.c.level).where(nodes.c.owner == 0)
        return [ChunkLevel(*row) for row in self._rows(query)]

    def get_fulltext_keys(self) -> set[int]:
        """Keys of the nodes in the full-text index."""
        with self._store.connect() as connection:
            key = _KEYS_OF_TEXT[connection.dialect.name]
            return set(connection.exec_driver_sql(f"SELECT {key} FROM crabpath_fulltext").scalars())

    def count_dangling_rows(self) -> dict[str, int]:
        """Number of rows, by table, whose document, namespace, turn or feedback was deleted."""
        lost = list_orphans()
        del lost["feedback"]  # on a turn that never was, it is kept with the reason
        lost["nodes"] |= ~sa.exists().where(contents.c.node == nodes.c.key)
        found = {
            TABLES[name].name: self._scalar(
                sa.select(sa.func.count()).select_from(TABLES[name]).where(condition)
            )
            for name, condition in lost.items()
        }
        return {name: count for name, count in found.items() if count}

    def count_isolated_chunks(self) -> int:
        """Number of document chunks without any structural edge."""
        touched = (nodes.c.key == edges.c.source, nodes.c.key == edges.c.target)
        alone = [~sa.exists().where(side) for side in touched]
        query = sa.select(sa.func.count()).select_from(nodes).where(nodes.c.owner == 0, *alone)
        return self._scalar(query) or 0

    def count_other_dimensions(self, dimension: int) -> int:
        """Number of nodes whose vector has another dimension."""
        other = sa.func.length(nodes.c.embedding) != 2 * dimension  # half precision
        return self._scalar(sa.select(sa.func.count()).where(other)) or 0

    def get_staged_ids(self) -> dict[str, set[str]]:
        """Ids in the ingest queue, by their operation."""
        found: dict[str, set[str]] = {}
        for name, operation in self._rows(sa.select(staging.c.id, staging.c.operation)):
            found.setdefault(operation, set()).add(name)
        return found

    def get_frozen_namespaces(self) -> list[str]:
        """Names of the frozen namespaces."""
        query = sa.select(namespaces.c.name).where(namespaces.c.frozen != 0)
        return self._scalars(query.order_by(namespaces.c.name))

    def count_open_feedback(self) -> FeedbackBacklog:
        """Counts of waiting and refused feedback."""
        of = feedback.c.status
        waits = sa.select(sa.func.count(), sa.func.min(feedback.c.created)).where(of == "waiting")
        refused = sa.select(sa.func.count()).where(of == "refused")
        with self._store.connect() as connection:
            count, since = connection.execute(waits).one()
            return FeedbackBacklog(count, since, connection.scalar(refused) or 0)

    def get_companion_ids(self, *, waiting: bool = False) -> dict[str, set[str]]:
        """Ids that the collections of episodes and notes must hold, by name of the collection.

        Args:
            waiting: Whether to include ids that are still queued for the index.
        """
        least = 0 if waiting else 1
        of_episodes = sa.select(s.episodes.c.namespace, s.episodes.c.id).where(
            s.episodes.c.indexed >= least
        )
        of_notes = (
            sa.select(s.notes.c.namespace, nodes.c.id)
            .join(nodes, nodes.c.key == s.notes.c.node)
            .where(s.notes.c.indexed >= least, IS_SEARCHED)
        )
        found: dict[str, set[str]] = {}
        for kind, query in (("episodes", of_episodes), ("notes", of_notes)):
            for namespace, name in self._rows(query):
                found.setdefault(f"{kind}-{namespace}", set()).add(name)
        return found
