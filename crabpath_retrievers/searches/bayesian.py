"""Similarity search re-ranked by five factors of each node (``search_bayesian``)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Node, NodeHead, Vector
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.searches.kinds import validate_number
from crabpath_retrievers.searches.scope import NamespaceView, compute_similarities
from crabpath_retrievers.text import format_value

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
    """Validate five finite numbers.

    Raises:
        InvalidInputError: They are something else.
    """
    names = ScoreFactors._fields
    values = list(weights) if isinstance(weights, (Sequence, np.ndarray)) else []
    if isinstance(weights, str) or len(values) != len(names):
        msg = f"weights must be five numbers, for {', '.join(names)}, not {format_value(weights)}"
        raise InvalidInputError(msg)
    return tuple(
        validate_number(
            f"the weight of {name}", float(value) if isinstance(value, np.number) else value
        )
        for name, value in zip(names, values, strict=True)
    )


def search_bayesian(
    scope: NamespaceView,
    regions: Regions,
    vector: Vector,
    k: int,
    weights: Sequence[float],
    prior: tuple[float, float],
) -> list[BayesianHit]:
    """Return the nearest nodes, re-ranked by the weighted sum of five factors.

    Args:
        scope: The view of the namespace.
        regions: Regions of the memory.
        vector: Unit query vector, shape ``[d]``.
        k: Number of results.
        weights: Weights of the factors, in the order of :class:`ScoreFactors`.
        prior: Uses and passes that every document starts with.
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
    regions: Regions,
    vector: Vector,
    heads: Sequence[NodeHead],
    prior: tuple[float, float],
) -> dict[str, ScoreFactors]:
    """Compute the factors of each node, by id."""
    cosine, clock = compute_similarities(heads, vector), scope.clock
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
    for clock, credits_ in scope.store.typed_edges.get_recent_credit(scope.clock, _MAX_TURNS):
        for node, credit in credits_.items():
            if credit > 0:
                last_success[node] = max(clock, last_success.get(node, 0))
    return last_success


def _read_regions(
    scope: NamespaceView, regions: Regions, vector: Vector, heads: Sequence[NodeHead]
) -> tuple[int | None, Mapping[int, int]]:
    """Read the region of the query and those of the nodes, by key; None in a small corpus."""
    version = scope.clock.hubs or scope.store.regions.version()
    level, query_region = regions.places(vector, version)[-1]
    if not level or not heads:
        return None, {}
    keys, vectors = [head.key for head in heads], [head.vector for head in heads]
    return query_region, regions.of_nodes(keys, vectors, level, version)
