"""Ids in an archive that already exist in other namespaces of this store."""

from collections.abc import Callable, Iterable

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import split_batches


class IdConflicts:
    """Finds ids of other namespaces."""

    def __init__(self, connection: sa.Connection, namespace: str) -> None:
        """Read on ``connection``; ids of ``namespace`` itself do not conflict."""
        self._connection = connection
        key = sa.select(s.namespaces.c.key).where(s.namespaces.c.name == namespace)
        own = connection.scalar(key) or 0
        self._others = {
            "turns": (s.turns.c.id, s.turns.c.namespace != own),
            "feedback": (
                s.feedback.c.id,
                sa.func.coalesce(s.feedback.c.namespace, "") != namespace,
            ),
            "nodes": (s.nodes.c.id, s.nodes.c.owner != own),
        }

    def find_conflicts(self, table: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids that belong to turns, feedback or nodes of other namespaces."""
        if table not in self._others:
            return set()
        column, others = self._others[table]
        return self._find_ids(ids, lambda part: sa.select(column).where(column.in_(part), others))

    def documents(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that belong to documents."""
        nodes, shared = s.nodes.c.id, s.nodes.c.owner == 0
        return self._find_ids(ids, lambda part: sa.select(nodes).where(nodes.in_(part), shared))

    def _find_ids(
        self, ids: Iterable[str], query: Callable[[list[str]], sa.Select[tuple[str]]]
    ) -> set[str]:
        found: set[str] = set()
        for part in split_batches(ids):
            found |= set(self._connection.scalars(query(part)))
        return found
