"""Whether what is stored fits together: reads of whole tables, for people who ask."""

from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.storage.reading import Readable
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


class Known(NamedTuple):
    """A document chunk: what names it, and what the level of its hub is stored as."""

    key: int
    id: str
    level: int


class Waiting(NamedTuple):
    """Feedback that is not learned from: how much waits and since when, how much was refused."""

    waiting: int
    since: float | None
    refused: int


class Checks:
    """Reads whose cost grows with the store."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def damage(self) -> str | None:
        """What SQLite finds wrong with its file; None when nothing is, or on PostgreSQL."""
        with self._store.reading() as connection:
            if connection.dialect.name != "sqlite":
                return None
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        return None if found == "ok" else str(found)

    def missing_tables(self) -> list[str]:
        """Tables that a store of this version has and this one lacks."""
        wanted = {*metadata.tables, "crabpath_fulltext"}
        with self._store.reading() as connection:
            return sorted(wanted - set(sa.inspect(connection).get_table_names()))

    def chunks(self) -> list[Known]:
        """All document chunks."""
        query = sa.select(nodes.c.key, nodes.c.id, nodes.c.level).where(nodes.c.owner == 0)
        with self._store.reading() as connection:
            return [Known(*row) for row in connection.execute(query)]

    def texts(self) -> set[int]:
        """Keys of the nodes that the full-text index knows."""
        with self._store.reading() as connection:
            key = _KEYS_OF_TEXT[connection.dialect.name]
            return set(connection.exec_driver_sql(f"SELECT {key} FROM crabpath_fulltext").scalars())

    def dangling(self) -> dict[str, int]:
        """Rows by table that refer to a node that is not there."""
        alive = sa.select(nodes.c.key)
        lost = {
            edges: edges.c.source.not_in(alive) | edges.c.target.not_in(alive),
            # 0 is the target of STOP, which is no node.
            overlay: overlay.c.source.not_in(alive)
            | (overlay.c.target.not_in(alive) & (overlay.c.target != 0)),
            contents: contents.c.node.not_in(alive),
            nodes: nodes.c.key.not_in(sa.select(contents.c.node)),
        }
        with self._store.reading() as connection:
            found = {
                table.name: connection.scalar(
                    sa.select(sa.func.count()).select_from(table).where(condition)
                )
                for table, condition in lost.items()
            }
        return {name: count for name, count in found.items() if count}

    def isolated(self) -> int:
        """Document chunks that no pointer of the text leads to or away from."""
        touched = (nodes.c.key == edges.c.source, nodes.c.key == edges.c.target)
        alone = [~sa.exists().where(side) for side in touched]
        query = sa.select(sa.func.count()).select_from(nodes).where(nodes.c.owner == 0, *alone)
        with self._store.reading() as connection:
            return connection.scalar(query) or 0

    def other_sizes(self, dimension: int) -> int:
        """Nodes whose vector has another dimension; two bytes a number."""
        other = sa.func.length(nodes.c.embedding) != 2 * dimension
        with self._store.reading() as connection:
            return connection.scalar(sa.select(sa.func.count()).where(other)) or 0

    def staged(self) -> dict[str, set[str]]:
        """Ids of what an interrupted ingest left, by what was to become of it."""
        found: dict[str, set[str]] = {}
        with self._store.reading() as connection:
            for name, operation in connection.execute(sa.select(staging.c.id, staging.c.operation)):
                found.setdefault(operation, set()).add(name)
        return found

    def meta(self) -> dict[str, str]:
        """Facts about the store itself."""
        with self._store.reading() as connection:
            return {name: value for name, value in connection.execute(sa.select(meta))}

    def frozen(self) -> list[str]:
        """Names of the namespaces that learn nothing."""
        query = sa.select(namespaces.c.name).where(namespaces.c.frozen != 0)
        with self._store.reading() as connection:
            return list(connection.scalars(query.order_by(namespaces.c.name)))

    def feedback(self) -> Waiting:
        """Feedback that waits or was refused."""
        of = feedback.c.status
        waits = sa.select(sa.func.count(), sa.func.min(feedback.c.created)).where(of == "waiting")
        refused = sa.select(sa.func.count()).where(of == "refused")
        with self._store.reading() as connection:
            count, since = connection.execute(waits).one()
            return Waiting(count, since, connection.scalar(refused) or 0)

    def beside(self, *, waiting: bool = False) -> dict[str, set[str]]:
        """Ids that must be found in the collections beside that of the documents, by its name.

        Args:
            waiting: Also those that may not be found yet.
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
        with self._store.reading() as connection:
            for kind, query in (("episodes", of_episodes), ("notes", of_notes)):
                for namespace, name in connection.execute(query):
                    found.setdefault(f"{kind}-{namespace}", set()).add(name)
        return found
