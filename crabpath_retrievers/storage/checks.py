"""Consistency checks of the store for the doctor: reads of whole tables."""

from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.storage.reading import ReadableStore
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
