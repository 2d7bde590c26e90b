"""The nodes that one namespace sees, for searches that record no turn.

Validation of search arguments: edge types by name, counts and numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast, get_args

import numpy as np

from crabpath_retrievers.core.query import require_list
from crabpath_retrievers.core.records import (
    TYPED_KINDS,
    EdgeKind,
    Node,
    NodeHead,
    Tier,
    Vector,
    compare_vectors,
)
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.parts.typed_graph.derive import TypedGraphs
from crabpath_retrievers.parts.typed_graph.queries import (
    Direction,
    TypedEdge,
    TypedQueries,
    WeightRange,
    sort_edges,
)
from crabpath_retrievers.retrieval.episodes import NoteMemory
from crabpath_retrievers.retrieval.search import find_nearest
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import VectorIndex, find_deleted, get_owner_lookup


@dataclass(frozen=True)
class NamespaceView:
    """The view of one namespace during one search."""

    store: GraphStore
    index: VectorIndex
    notes: NoteMemory
    typed: TypedGraphs
    namespace: str

    @cached_property
    def clock(self) -> Clock:
        """Position of the namespace."""
        return self.store.walk.get_clock(self.namespace)

    def key(self, node_id: str) -> int:
        """Return the key of one node."""
        heads = self.store.walk.get_nodes([node_id], namespace=self.clock.key)
        if not heads:
            msg = f"there is no document {node_id!r:.250} in namespace {self.namespace!r:.250}"
            raise NotFoundError(msg)
        return heads[0].key

    def edges(
        self, keys: Sequence[int], kinds: Iterable[EdgeKind], direction: Direction = "out"
    ) -> list[TypedEdge]:
        """Return the edges of some kinds at all given nodes, structural and learned.

        Edges of weight 0 are left out, and so are those at notes whose probation is over. ``keys``
        are at most some thousands.
        """
        typed, wanted = TypedQueries(self.store), set(kinds)
        found = typed.edges(keys, self.clock, wanted.difference(TYPED_KINDS), direction)
        if self.clock.key and not wanted.isdisjoint(TYPED_KINDS):
            derived = self.typed.derive(self.store, self.clock).list_edges(keys, wanted, direction)
            ids = typed.get_ids({edge.key for edge in derived}, self.clock.key)
            found += [edge._replace(id=ids[edge.key]) for edge in derived if edge.key in ids]
        if not found:
            return []
        expired = self.notes.find_expired(self.store, [edge.id for edge in found], self.clock)
        return [edge for edge in found if edge.id not in expired]

    def strongest_edges(
        self,
        key: int,
        kinds: Iterable[EdgeKind],
        weights: WeightRange,
        way: Direction,
        place: tuple[int, int],
    ) -> tuple[list[TypedEdge], int]:
        """Return the strongest edges of a node, and the number of all with these weights.

        ``way`` is the direction; ``place`` is the number of stronger edges to leave out, and of
        those to return.
        """
        wanted, (offset, limit) = set(kinds), place
        typed = wanted.intersection(TYPED_KINDS)
        since = self.notes.get_probation_start(self.clock)
        read_from = (0, offset + limit) if typed else place
        given = (key, self.clock, wanted - typed, weights, way, read_from)
        found, total = TypedQueries(self.store).find_strongest(*given, since=since)
        if not typed:
            return found, total
        more = [edge for edge in self.edges([key], typed, way) if weights.holds(edge.weight)]
        return sort_edges([*found, *more])[offset:][:limit], total + len(more)

    def near(self, vector: Vector, n: int) -> list[NodeHead]:
        """Return the documents nearest to a unit vector, shape ``[d]``, without notes."""
        return find_nearest(self.store, self.index, vector, n)

    def heads(self, keys: Sequence[int]) -> list[NodeHead]:
        """Return nodes by key, without notes whose probation is over."""
        if not keys:
            return []
        heads = self.store.walk.get_nodes([], list(keys), namespace=self.clock.key)
        ids = [head.id for head in heads]
        hidden = self.notes.find_expired(self.store, ids, self.clock) | self._find_deleted(ids)
        return [head for head in heads if head.id not in hidden]

    def _find_deleted(self, ids: Sequence[str]) -> set[str]:
        """Return the documents that the owner of a wrapped store has deleted."""
        get_owned = get_owner_lookup(self.index)
        return find_deleted(get_owned, self.store, ids, self.clock) if get_owned else set()

    def documents(self, ids: Sequence[str]) -> dict[str, Node]:
        """Return contents by id."""
        return self.store.catalog.documents(ids, namespace=self.clock.key)


def compute_similarities(
    heads: Sequence[NodeHead], vector: Vector, stretch: float
) -> dict[int, float]:
    """Return the similarity of each node to a unit vector, shape ``[d]``, by key."""
    single = np.asarray(vector, dtype=np.float32)
    similarities = compare_vectors([head.vector for head in heads], single, stretch)
    return {head.key: near for head, near in zip(heads, similarities, strict=True)}


EDGE_KINDS_BY_NAME: Mapping[str, EdgeKind] = {
    kind.label: kind for kind in EdgeKind if kind is not EdgeKind.STOP
}
"""Edge kinds that can be searched, by name."""

SETTABLE_KINDS_BY_NAME: Mapping[str, EdgeKind] = {
    kind.label: kind for kind in (EdgeKind.TAUGHT, EdgeKind.INHIBITS, *TYPED_KINDS)
}
"""Edge kinds that a user may set, by name: those that queries follow, and those of outcomes."""

WALKED_KINDS: tuple[EdgeKind, ...] = tuple(
    kind for kind in EDGE_KINDS_BY_NAME.values() if kind not in TYPED_KINDS
)
"""Edge kinds that queries follow: those of the text, and those of what was learned or taught."""

MAX_COUNT = 10_000
"""Most nodes, hops or turns that one call takes."""


def parse_edge_kind(name: object, known: Mapping[str, EdgeKind] = EDGE_KINDS_BY_NAME) -> EdgeKind:
    """Return the edge kind of a name, of those in ``known``.

    Raises:
        InvalidInputError: There is none.
    """
    if not isinstance(name, str) or name not in known:
        msg = f"unknown edge type {format_value(name)}: use one of {', '.join(known)}"
        raise InvalidInputError(msg)
    return known[name]


def parse_edge_kinds(names: str | Iterable[str] | None) -> tuple[EdgeKind, ...]:
    """Return the edge kinds of one or several names; None is all of them."""
    if names is None:
        return tuple(EDGE_KINDS_BY_NAME.values())
    if not isinstance(names, Iterable) or isinstance(names, (bytes, Mapping)):
        parse_edge_kind(names)
    values = [names] if isinstance(names, str) else require_list("edge types", names)
    if not values:
        msg = f"give at least one edge type of {', '.join(EDGE_KINDS_BY_NAME)}"
        raise InvalidInputError(msg)
    return tuple(dict.fromkeys(parse_edge_kind(name) for name in values))


def parse_tier(name: object) -> Tier | None:
    """Return the tier of a name; None for None."""
    known = {tier.value: tier for tier in Tier}
    if name is None:
        return None
    if not isinstance(name, str) or name not in known:
        msg = f"unknown tier {format_value(name)}: use one of {', '.join(known)}"
        raise InvalidInputError(msg)
    return known[name]


def parse_direction(name: object) -> Direction:
    """Validate a direction."""
    if not isinstance(name, str) or name not in get_args(Direction):
        msg = f"direction must be 'out' or 'in', not {format_value(name)}"
        raise InvalidInputError(msg)
    return cast("Direction", name)
