"""Reads of the doctor, whose cost grows with the store."""

from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.read.notes import IS_SEARCHED
from crabpath_retrievers.storage.schema import (
    TABLES,
    contents,
    edges,
    feedback,
    list_orphans,
    namespaces,
    nodes,
    staging,
)
from crabpath_retrievers.storage.sql_tools import Queries

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
        """Number of rows, by table, whose document, namespace, turn or feedback is gone."""
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
