"""Reads of the region MDP: hubs, states of agents, nodes for regions, transition counts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.changes import TransitionCount
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.storage.schema import meta, namespaces, nodes, notes, transitions
from crabpath_retrievers.storage.sql_tools import CompiledSelect, Queries, decode_vector

_BLOCK = 4096
_STEP = [transitions.c[name] for name in TransitionCount._fields]
_STEPS = CompiledSelect(
    sa.select(*_STEP).where(
        transitions.c.namespace == sa.bindparam("namespace"),
        transitions.c.level.in_(sa.bindparam("levels", expanding=True)),
        transitions.c.region.in_(sa.bindparam("regions", expanding=True)),
    )
)


_NODE = sa.select(nodes.c.key, nodes.c.id, nodes.c.title, nodes.c.embedding)


class NodeVector(NamedTuple):
    """A node with its unit vector, shape ``[d]``, half precision."""

    key: int
    id: str
    title: str
    vector: Vector


class RegionQueries(Queries):
    """Reads of regions; queries use only :meth:`steps`."""

    def version(self) -> int:
        """Version of the set of hubs; 0 in a corpus without any."""
        query = sa.select(meta.c.value).where(meta.c.name == "hubs")
        return int(self._scalar(query) or 0)

    def sizes(self) -> dict[int, int]:
        """Number of hubs by level, from level 1 to the highest."""
        query = sa.select(nodes.c.level, sa.func.count()).where(nodes.c.level > 0)
        exact = {level: n for level, n in self._rows(query.group_by(nodes.c.level))}
        top = max(exact, default=0)
        return {
            level: sum(n for other, n in exact.items() if other >= level)
            for level in range(1, top + 1)
        }

    def hubs(self, level: int) -> list[NodeVector]:
        """The hubs of a level, in order of their keys."""
        query = _NODE.where(nodes.c.level >= level).order_by(nodes.c.key)
        return _decode_nodes(self._rows(query))

    def iterate_nodes(self) -> Iterator[list[NodeVector]]:
        """Yield all visible nodes except notes in blocks, in order of their keys."""
        for rows in self._iterate_blocks(_NODE.where(nodes.c.owner == 0), nodes.c.key, _BLOCK):
            yield _decode_nodes(rows)

    def get_states(self, namespace: int, most: int) -> list[NodeVector]:
        """The newest states of the episodes of agents, in order of their keys."""
        query = _NODE.join(notes, notes.c.node == nodes.c.key)
        query = query.where(notes.c.namespace == namespace, notes.c.kind == "state")
        rows = self._rows(query.order_by(nodes.c.key.desc()).limit(most))
        return _decode_nodes(rows[::-1])

    def get_vectors(self, keys: Sequence[int]) -> list[Vector]:
        """Unit vectors, shape ``[d]``, half precision, of the nodes with these keys."""
        rows = self._rows_in(sa.select(nodes.c.embedding), nodes.c.key, keys)
        return [decode_vector(data) for (data,) in rows]

    def get_transitions(
        self, namespace: int, places: Sequence[tuple[int, int]]
    ) -> list[TransitionCount]:
        """Transition counts of a namespace from these regions.

        Args:
            namespace: Key of the namespace.
            places: Regions, as ``(level, key of the hub)``.
        """
        levels, regions = ({place[part] for place in places} for part in (0, 1))
        rows = self._run(_STEPS, namespace=namespace, levels=list(levels), regions=list(regions))
        known = set(places)
        return _decode_counts(row for row in rows if (row[0], row[1]) in known)

    def get_all_transitions(self, namespace: str, level: int) -> list[TransitionCount]:
        """Transition counts of a namespace at one level, and those of all its regions together."""
        levels = {min(level, 0), level}
        query = (
            sa.select(*_STEP)
            .join(namespaces, namespaces.c.key == transitions.c.namespace)
            .where(namespaces.c.name == namespace, transitions.c.level.in_(levels))
        )
        return _decode_counts(self._rows(query))


def _decode_counts(rows: Iterable[Sequence[Any]]) -> list[TransitionCount]:
    """Counts of at least 0, see ``registry.COUNTERS``; without those that are all 0."""
    found = (TransitionCount(*row[:5], *(max(0.0, count) for count in row[5:])) for row in rows)
    return [one for one in found if any(one.counts)]


def _decode_nodes(rows: Sequence[Any]) -> list[NodeVector]:
    return [NodeVector(key, name, title, decode_vector(data)) for key, name, title, data in rows]
