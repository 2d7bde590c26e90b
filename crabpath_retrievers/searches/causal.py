"""Similarity search with the nodes before and after each hit (``search_causal``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crabpath_retrievers.graph import EdgeKind, Node, Vector
from crabpath_retrievers.searches.following import Neighbour
from crabpath_retrievers.searches.scope import NamespaceView, compute_similarities
from crabpath_retrievers.storage.typed_queries import Direction, TypedEdge


@dataclass(frozen=True, slots=True)
class CausalHit:
    """A node with its neighbours in the order of use.

    Attributes:
        node: The node.
        similarity: Its cosine with the query, in [-1, 1].
        predecessors: Nodes before it, the nearest first, each with the weight of the edge to the
            next one.
        successors: Nodes after it, the nearest first, each with the weight of the edge that leads
            to it.
    """

    node: Node
    similarity: float
    predecessors: tuple[Neighbour, ...]
    successors: tuple[Neighbour, ...]


def search_causal(scope: NamespaceView, vector: Vector, k: int, context: int) -> list[CausalHit]:
    """Return the k nearest documents, each with its strongest chains of ``temporal`` edges.

    Args:
        scope: The view of the namespace.
        vector: Unit query vector, shape ``[d]``.
        k: Number of results.
        context: Longest chain on either side.
    """
    heads = scope.near(vector, k)
    cosine = compute_similarities(heads, vector)
    before = _follow_chains(scope, [head.key for head in heads], context, "in")
    after = _follow_chains(scope, [head.key for head in heads], context, "out")
    nodes = scope.documents([head.id for head in heads])
    edges_by_node = [
        CausalHit(nodes[head.id], cosine[head.key], before[head.key], after[head.key])
        for head in heads
        if head.id in nodes
    ]
    return sorted(edges_by_node, key=lambda hit: (-hit.similarity, hit.node.id))


def _follow_chains(
    scope: NamespaceView, keys: Sequence[int], context: int, direction: Direction
) -> Mapping[int, tuple[Neighbour, ...]]:
    """Follow the strongest edge from each node to one not yet in its chain; a query per hop."""
    chains: dict[int, list[Neighbour]] = {key: [] for key in keys}
    ends = {key: key for key in keys}
    seen = {key: {key} for key in keys}
    for _ in range(context):
        by_node = _read_edges(scope, sorted(set(ends.values())), direction)
        next_ends = dict[int, int]()
        for start, end in ends.items():
            edges_by_node = next(
                (e for e in by_node.get(end, ()) if e.key not in seen[start]), None
            )
            if edges_by_node is not None:
                chains[start].append(
                    Neighbour(edges_by_node.id, edges_by_node.kind.label, edges_by_node.weight)
                )
                seen[start].add(edges_by_node.key)
                next_ends[start] = edges_by_node.key
        ends = next_ends
        if not ends:
            break
    return {key: tuple(chain) for key, chain in chains.items()}


def _read_edges(
    scope: NamespaceView, keys: Sequence[int], direction: Direction
) -> dict[int, list[TypedEdge]]:
    """Read the edges of each node, strongest first."""
    edges = scope.store.typed_edges.edges(keys, scope.clock, [EdgeKind.TEMPORAL], direction)
    expired = scope.notes.find_expired([edge.id for edge in edges], scope.clock) if edges else set()
    edges_by_node: dict[int, list[TypedEdge]] = {}
    for edge in sorted(edges, key=lambda edge: (-edge.weight, edge.id)):
        if edge.weight > 0 and edge.id not in expired:
            edges_by_node.setdefault(edge.near, []).append(edge)
    return edges_by_node
