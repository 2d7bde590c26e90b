"""Similarity search with boosts along typed edges (``search_graph``).

Similarity search re-ranked by five factors of each node (``search_bayesian``).

Similarity search with the nodes before and after each hit (``search_causal``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.core.query import require_number
from crabpath_retrievers.core.records import EdgeKind, Node, NodeHead, Vector
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.typed_graph.follow import Neighbour
from crabpath_retrievers.parts.typed_graph.queries import Direction, TypedQueries
from crabpath_retrievers.parts.typed_graph.view import NamespaceView, compute_similarities
from crabpath_retrievers.regions import RegionIndex

_NEAREST_PER_RESULT, _MIN_NEAREST = 4, 20  # hits of the vector index: four times k, at least 20


class EdgeContribution(NamedTuple):
    """The contribution of one edge to a node's score."""

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
    """Return the best k of the nearest nodes and of the nodes that edges lead to from there.

    A score is ``cosine + Σ boost · w · cosine(source)``. ``boosts`` has the factor of each type; of
    each type only the edge with the largest ``|w · cosine(source)|`` counts; sources with a
    negative cosine contribute nothing.
    """
    hits = {
        head.key: head for head in scope.near(vector, max(_NEAREST_PER_RESULT * k, _MIN_NEAREST))
    }
    edges = scope.edges(list(hits), boosts) if boosts else []
    for head in scope.heads(list({edge.key for edge in edges} - hits.keys())):
        hits[head.key] = head
    cosine = compute_similarities(list(hits.values()), vector, scope.store.stretch)
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


DEFAULT_FACTOR_WEIGHTS = (1.0, 0.3, 0.5, 0.2, 0.4)
_HITS_PER_RESULT, _MIN_HITS = 4, 40  # hits that are re-ranked: four times k, at least 40
_RECENCY_DECAY = 0.01  # per turn
_MAX_TURNS = 1_000  # turns back; for older ones exp(-0.01 n) is below 5e-5


class ScoreFactors(NamedTuple):
    """Factors of a node's score; all but the first are in [0, 1].

    Attributes:
        similarity: Cosine with the query, in [-1, 1].
        recency: ``exp(-0.01 n)``, n turns of the namespace after the last feedback on a question
            that the node helped to answer; 0 if there is none within the last 1,000 turns.
        reward: Reward left after failures, ``exp(-decay)``; 1 before any.
        region_match: 1 in the query's region of the finest counted level, else 0.
        usage_success: Posterior mean of being used when returned, with prior ``usage_prior``.
    """

    similarity: float
    recency: float
    reward: float
    region_match: float
    usage_success: float


@dataclass(frozen=True, slots=True)
class BayesianHit:
    """A node with its score, the weighted sum of its factors, and the factors."""

    node: Node
    score: float
    factors: ScoreFactors


def validate_weights(weights: object) -> tuple[float, ...]:
    """Validate five finite numbers."""
    names = ScoreFactors._fields
    values = list(weights) if isinstance(weights, (Sequence, np.ndarray)) else []
    if isinstance(weights, str) or len(values) != len(names):
        msg = f"weights must be five numbers, for {', '.join(names)}, not {format_value(weights)}"
        raise InvalidInputError(msg)
    return tuple(
        require_number(f"the weight of {name}", value)
        for name, value in zip(names, values, strict=True)
    )


def search_bayesian(
    scope: NamespaceView,
    regions: RegionIndex,
    vector: Vector,
    k: int,
    weights: Sequence[float],
    prior: tuple[float, float],
) -> list[BayesianHit]:
    """Return the nearest nodes, re-ranked by the weighted sum of five factors.

    ``weights`` are those of the factors; ``prior`` are the uses and passes that every document
    starts with.
    """
    heads = scope.near(vector, max(_HITS_PER_RESULT * k, _MIN_HITS))
    factors = _compute_factors(scope, regions, vector, heads, prior)
    scores = {
        node: sum(w * factor for w, factor in zip(weights, values, strict=True))
        for node, values in factors.items()
    }
    best = sorted(scores, key=lambda node: (-scores[node], node))[:k]
    nodes = scope.documents(best)
    return [BayesianHit(nodes[n], scores[n], factors[n]) for n in best if n in nodes]


def _compute_factors(
    scope: NamespaceView,
    regions: RegionIndex,
    vector: Vector,
    heads: Sequence[NodeHead],
    prior: tuple[float, float],
) -> dict[str, ScoreFactors]:
    """Compute the five factors of each of ``heads``, by id.

    ``prior`` are the uses and passes that every document starts with.
    """
    cosine, clock = compute_similarities(heads, vector, scope.store.stretch), scope.clock
    usage = scope.store.learned.usage(clock.key, [head.key for head in heads])
    last_success = _read_last_success(scope)
    query_region, region_by_key = _read_regions(scope, regions, vector, heads)
    wins, losses = prior
    factors_by_node = {}
    for head in heads:
        wins_counted, losses_counted, decay = usage.get(head.key, (0.0, 0.0, 0.0))
        elapsed = (
            max(0, clock.turn - last_success[head.id]) if head.id in last_success else math.inf
        )
        factors_by_node[head.id] = ScoreFactors(
            cosine[head.key],
            math.exp(-_RECENCY_DECAY * elapsed),
            math.exp(-decay),
            float(query_region is not None and region_by_key.get(head.key) == query_region),
            (wins + wins_counted) / (wins + losses + wins_counted + losses_counted),
        )
    return factors_by_node


def _read_last_success(scope: NamespaceView) -> dict[str, int]:
    """Read the turn number at which an episode last credited a node, by node id."""
    if not scope.clock.key:
        return {}
    last_success: dict[str, int] = {}
    for clock, credits_ in TypedQueries(scope.store).get_recent_credit(scope.clock, _MAX_TURNS):
        for node, credit in credits_.items():
            if credit > 0:
                last_success[node] = max(clock, last_success.get(node, 0))
    return last_success


def _read_regions(
    scope: NamespaceView, regions: RegionIndex, vector: Vector, heads: Sequence[NodeHead]
) -> tuple[int | None, Mapping[int, int]]:
    """Read the region of the query, and those of the nodes by key; in a small corpus, none.

    The region of the query is then None.
    """
    version = scope.clock.hubs or scope.store.regions.version()
    level, query_region = regions.places(vector, version)[-1]
    if not level or not heads:
        return None, {}
    keys, vectors = [head.key for head in heads], [head.vector for head in heads]
    return query_region, regions.of_nodes(keys, vectors, level, version)


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

    ``context`` is the longest chain on either side.
    """
    heads = scope.near(vector, k)
    cosine = compute_similarities(heads, vector, scope.store.stretch)
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
    """Follow the strongest edge from each node to one not yet in its chain; a query per hop.

    ``context`` is the longest chain; chains are by key of the node where they begin.
    """
    chains: dict[int, list[Neighbour]] = {key: [] for key in keys}
    ends, seen = {key: key for key in keys}, {key: {key} for key in keys}
    for _ in range(context):
        edges = scope.edges(sorted(set(ends.values())), [EdgeKind.TEMPORAL], direction)
        strongest = sorted(edges, key=lambda edge: (-edge.weight, edge.id))
        next_ends = dict[int, int]()
        for start, end in ends.items():
            leaving = (e for e in strongest if e.near == end and e.key not in seen[start])
            edge = next(leaving, None)
            if edge is not None and edge.weight > 0:
                chains[start].append(Neighbour(edge.id, edge.kind.label, edge.weight))
                seen[start].add(edge.key)
                next_ends[start] = edge.key
        ends = next_ends
        if not ends:
            break
    return {key: tuple(chain) for key, chain in chains.items()}
