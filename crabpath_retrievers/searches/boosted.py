"""Similarity search with boosts along typed edges (``search_graph``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.graph import EdgeKind, Node, Vector
from crabpath_retrievers.searches.scope import NamespaceView, compute_similarities

_NEAREST_PER_RESULT, _MIN_NEAREST = 4, 20  # hits of the vector index: four times k, at least 20


class EdgeContribution(NamedTuple):
    """The contribution of one edge to a node's score.

    Attributes:
        source: Id of the source node.
        edge_type: Type of the edge.
        weight: Weight of the edge, in [-1, 1].
        share: What it adds to the score.
    """

    source: str
    edge_type: str
    weight: float
    share: float


@dataclass(frozen=True, slots=True)
class GraphHit:
    """A node found by similarity or along an edge.

    Attributes:
        node: The node.
        score: Its cosine plus the contributions of edges.
        similarity: Its cosine with the query, in [-1, 1].
        contributions: The contributions, at most one per edge type.
    """

    node: Node
    score: float
    similarity: float
    contributions: tuple[EdgeContribution, ...]


def search_graph(
    scope: NamespaceView, vector: Vector, k: int, boosts: Mapping[EdgeKind, float]
) -> list[GraphHit]:
    """Return the best k of the nearest nodes and the nodes that edges lead to from there.

    ``cosine + Σ boost · w · cosine(source)``: of each type only the edge with the largest ``|w ·
    cosine(source)|``; sources with a negative cosine contribute nothing.

    Args:
        scope: The view of the namespace.
        vector: Unit query vector, shape ``[d]``.
        k: Number of results.
        boosts: Boost by edge kind.
    """
    hits = {
        head.key: head for head in scope.near(vector, max(_NEAREST_PER_RESULT * k, _MIN_NEAREST))
    }
    cosine = compute_similarities(list(hits.values()), vector)
    edges = scope.store.typed_edges.edges(list(hits), scope.clock, boosts) if boosts else []
    for head in scope.heads(list({edge.key for edge in edges} - hits.keys())):
        hits[head.key] = head
    cosine = compute_similarities(list(hits.values()), vector)
    contributions: dict[int, dict[EdgeKind, EdgeContribution]] = {}
    for edge in edges:
        signal = edge.weight * max(0.0, cosine[edge.near])
        share = boosts[edge.kind] * signal
        best = contributions.setdefault(edge.key, {}).get(edge.kind)
        if share and edge.near != edge.key and (best is None or abs(share) > abs(best.share)):
            source, label = hits[edge.near].id, edge.kind.label
            contributions[edge.key][edge.kind] = EdgeContribution(source, label, edge.weight, share)
    scores = {
        key: cosine[key]
        + sum(contribution.share for contribution in contributions.get(key, {}).values())
        for key in hits
    }
    best_keys = sorted(hits, key=lambda key: (-scores[key], hits[key].id))[:k]
    nodes = scope.documents([hits[key].id for key in best_keys])
    return [
        GraphHit(
            nodes[hits[key].id],
            scores[key],
            cosine[key],
            tuple(contributions.get(key, {}).values()),
        )
        for key in best_keys
        if hits[key].id in nodes
    ]
