"""Edges of a node: pages of them, its neighbours, and breadth-first traversal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from crabpath_retrievers.config import TierSettings
from crabpath_retrievers.core.records import EdgeKind
from crabpath_retrievers.parts.typed_graph.queries import (
    Direction,
    NodeInfo,
    TypedEdge,
    TypedQueries,
    WeightRange,
)
from crabpath_retrievers.parts.typed_graph.view import NamespaceView

MAX_REACHED = 500
"""Most nodes of a traversal; of a hop that exceeds it the strongest are taken."""


class Neighbour(NamedTuple):
    """A node at the other end of an edge.

    Attributes:
        id: Id of the node.
        edge_type: Type of the edge.
        weight: Effective weight in [-1, 1], decay included.
    """

    id: str
    edge_type: str
    weight: float


class ReachedNode(NamedTuple):
    """A node reached by a traversal.

    Attributes:
        id: Id of the node.
        hops: Fewest hops from the start, at least 1.
        path: Ids from the start to the node, both included.
        edge_types: Types of the edges along the path.
        weight: Product of their weights, in [-1, 1]; of equally short paths the strongest.
    """

    id: str
    hops: int
    path: tuple[str, ...]
    edge_types: tuple[str, ...]
    weight: float


class WeighedEdge(NamedTuple):
    """An edge as one namespace sees it now.

    Attributes:
        source, target: Ids of the nodes at both ends.
        title: Title of the node at the other end, or else its source, or how its text begins.
        kind: Kind of the edge.
        weight: Effective weight in [-1, 1], decay included.
        prior: Weight that the text gives it, in [-1, 1]; 0 for an edge that was learned.
        tier: How a walk treats it.
    """

    source: str
    target: str
    title: str
    kind: str
    weight: float
    prior: float
    tier: str


class EdgePage(NamedTuple):
    """Some of the edges of a node, strongest first.

    Attributes:
        node: The node.
        edges: The edges of this page.
        total: Number of all edges that were asked for.
        next_offset: Offset of the next page; None on the last one.
    """

    node: NodeInfo
    edges: tuple[WeighedEdge, ...]
    total: int
    next_offset: int | None


def page_edges(
    scope: NamespaceView,
    node: str,
    kinds: Iterable[EdgeKind],
    weights: WeightRange,
    direction: Direction,
    place: tuple[int, int],
    tiers: TierSettings,
) -> EdgePage:
    """Return a page of the edges of a node, strongest first.

    Args:
        scope: The namespace.
        node: Id of the node.
        kinds: Kinds of the edges.
        weights: Range of the weights.
        direction: ``out`` or ``in``.
        place: Number of stronger edges to leave out, and of those to return.
        tiers: Weights that separate the tiers.
    """
    key, end = scope.key(node), sum(place)
    page, total = scope.strongest_edges(key, kinds, weights, direction, place)
    facts = TypedQueries(scope.store).describe_nodes(
        {key, *(edge.key for edge in page)}, scope.clock.key
    )
    if key not in facts:  # it was removed meanwhile, or replaced
        return page_edges(scope, node, kinds, weights, direction, place, tiers)
    others = [facts[edge.key].id for edge in page if edge.key in facts]
    titles = scope.store.catalog.get_titles(others, namespace=scope.clock.key)
    edges = []
    for edge in page:
        if edge.key in facts:  # else it was removed meanwhile
            other = facts[edge.key]
            source, target = (node, other.id) if direction == "out" else (other.id, node)
            tier = tiers.tier_of(edge.weight).value
            of_edge = (edge.kind.label, edge.weight, edge.prior)
            edges.append(WeighedEdge(source, target, titles.get(other.id, ""), *of_edge, tier))
    return EdgePage(facts[key], tuple(edges), total, end if end < total else None)


def list_neighbours(
    scope: NamespaceView,
    node: str,
    kinds: Iterable[EdgeKind],
    min_weight: float,
    direction: Direction,
) -> list[Neighbour]:
    """List the nodes at the other end of a node's edges, strongest first.

    Edges are of ``kinds``, in one direction, with an absolute weight of at least ``min_weight``.
    """
    edges = scope.edges([scope.key(node)], kinds, direction)
    found = [
        Neighbour(edge.id, edge.kind.label, edge.weight)
        for edge in edges
        if abs(edge.weight) >= min_weight
    ]
    return sorted(found, key=lambda one: (-abs(one.weight), one.id, one.edge_type))


def traverse_edges(
    scope: NamespaceView, start: str, kinds: Sequence[EdgeKind], hops: int, min_weight: float
) -> list[ReachedNode]:
    """Return the nodes within ``hops`` along edges of these kinds, breadth first.

    Edges have an absolute weight of at least ``min_weight``. Every node is listed once, with its
    fewest hops, so cycles end. At most 500 nodes; one query per hop.
    """
    key = scope.key(start)
    frontier, visited = {key: ReachedNode(start, 0, (start,), (), 1.0)}, {key}
    reached: list[ReachedNode] = []
    for _ in range(hops):
        edges = scope.edges(list(frontier), kinds)
        visible = [edge for edge in edges if abs(edge.weight) >= min_weight]
        next_nodes = _advance(frontier, visible, visited)
        best = sorted(next_nodes.items(), key=lambda item: (-abs(item[1].weight), item[1].id))
        frontier = dict(best[: MAX_REACHED - len(reached)])
        visited |= set(frontier)
        reached += frontier.values()
        if not frontier or len(reached) >= MAX_REACHED:
            break
    return reached


def collect_neighbourhood(
    scope: NamespaceView, starts: Iterable[int], kinds: Sequence[EdgeKind], hops: int, limit: int
) -> set[int]:
    """Return the keys of the nodes within ``hops`` along edges in either direction.

    The nodes ``starts`` are always among them; of further ones at most so many that there are
    ``limit`` in all. Of a hop that exceeds this, the nodes of the strongest edges are taken. Two
    queries per hop.
    """
    frontier = list(dict.fromkeys(starts))
    found = set(frontier)
    for _ in range(hops):
        best: dict[int, float] = {}
        for direction in get_args(Direction):
            for edge in scope.edges(frontier, kinds, direction):
                if edge.key not in found:
                    best[edge.key] = max(abs(edge.weight), best.get(edge.key, 0.0))
        strongest = sorted(best, key=lambda key: (-best[key], key))
        frontier = strongest[: max(0, limit - len(found))]
        if not frontier:
            break
        found.update(frontier)
    return found


def _advance(
    frontier: Mapping[int, ReachedNode], edges: Iterable[TypedEdge], visited: set[int]
) -> dict[int, ReachedNode]:
    """Return the nodes of the next hop by key, each by the path with the strongest product.

    ``frontier`` has the nodes of this hop by key; nodes in ``visited`` are left out.
    """
    reached: dict[int, ReachedNode] = {}
    for edge in sorted(edges, key=lambda edge: (edge.id, edge.kind.label)):
        source = frontier[edge.near]
        weight = source.weight * edge.weight
        known = reached.get(edge.key)
        if edge.key not in visited and (known is None or abs(weight) > abs(known.weight)):
            path, types = (*source.path, edge.id), (*source.edge_types, edge.kind.label)
            reached[edge.key] = ReachedNode(edge.id, source.hops + 1, path, types, weight)
    return reached
