"""Similarity re-ranked by what is known of each node (004 C, ``bayesian_search``)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Node, NodeHead, Vector
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.searches.kinds import number
from crabpath_retrievers.searches.scope import Scope, similarity
from crabpath_retrievers.text import shown

DEFAULT_WEIGHTS = (1.0, 0.3, 0.5, 0.2, 0.4)
_HITS, _LEAST = 4, 40  # hits of the vector index that are re-ranked: four times k, at least 40
_FADING = 0.01  # per turn
_LATEST = 1_000  # turns that are looked back: before that exp(-.01 n) is below 5e-5


class Factors(NamedTuple):
    """What speaks for a node; all but the first lie in [0, 1].

    Attributes:
        similarity: Cosine with the query, in [-1, 1].
        recency: ``exp(-0.01 n)``, n turns of the namespace after a question that the node answered
            was last judged; 0 for one that never helped, or not in the last 1,000 turns.
        reward: What failures have left of its reward, ``exp(-decay)``; 1 before any.
        region_match: 1 in the query's own region of the finest counted level, else 0.
        usage_success: Posterior mean of being used when returned, from ``usage_prior`` on.
    """

    similarity: float
    recency: float
    reward: float
    region_match: float
    usage_success: float


@dataclass(frozen=True, slots=True)
class BayesianHit:
    """A node that was found: the weighted sum of its factors, and the factors."""

    node: Node
    score: float
    factors: Factors


def weights_of(weights: object) -> tuple[float, ...]:
    """Five finite numbers.

    Raises:
        InvalidInputError: They are something else.
    """
    names = Factors._fields
    given = list(weights) if isinstance(weights, (Sequence, np.ndarray)) else []
    if isinstance(weights, str) or len(given) != len(names):
        msg = f"weights must be five numbers, for {', '.join(names)}, not {shown(weights)}"
        raise InvalidInputError(msg)
    return tuple(
        number(f"the weight of {name}", float(one) if isinstance(one, np.number) else one)
        for name, one in zip(names, given, strict=True)
    )


def bayesian_search(
    scope: Scope,
    regions: Regions,
    vector: Vector,
    k: int,
    weights: Sequence[float],
    prior: tuple[float, float],
) -> list[BayesianHit]:
    """The nearest nodes, re-ranked by the weighted sum of five factors (document 004 C).

    Args:
        scope: What may be seen.
        regions: Of the memory.
        vector: Unit query vector, shape ``[d]``.
        k: How many.
        weights: Of the factors, in the order of :class:`Factors`.
        prior: Uses and passes that every document starts with.
    """
    heads = scope.near(vector, max(_HITS * k, _LEAST))
    factors = _factors(scope, regions, vector, heads, prior)
    scores = {
        node: sum(w * factor for w, factor in zip(weights, known, strict=True))
        for node, known in factors.items()
    }
    best = sorted(scores, key=lambda node: (-scores[node], node))[:k]
    nodes = scope.documents(best)
    return [BayesianHit(nodes[n], scores[n], factors[n]) for n in best if n in nodes]


def _factors(
    scope: Scope,
    regions: Regions,
    vector: Vector,
    heads: Sequence[NodeHead],
    prior: tuple[float, float],
) -> dict[str, Factors]:
    """Of each node, by id."""
    cosine, clock = similarity(heads, vector), scope.clock
    usage = scope.store.learned.usage(clock.key, [head.key for head in heads])
    last = _last_helped(scope)
    home, homes = _homes(scope, regions, vector, heads)
    wins, losses = prior
    found = {}
    for head in heads:
        won, lost, decay = usage.get(head.key, (0.0, 0.0, 0.0))
        ago = max(0, clock.turn - last[head.id]) if head.id in last else math.inf
        found[head.id] = Factors(
            cosine[head.key],
            math.exp(-_FADING * ago),
            math.exp(-decay),
            float(home is not None and homes.get(head.key) == home),
            (wins + won) / (wins + losses + won + lost),
        )
    return found


def _last_helped(scope: Scope) -> dict[str, int]:
    """Turn number at which an episode that speaks for a node was last added to, by id."""
    if not scope.clock.key:
        return {}
    last: dict[str, int] = {}
    for clock, credits_ in scope.store.typed.helped(scope.clock, _LATEST):
        for node, credit in credits_.items():
            if credit > 0:
                last[node] = max(clock, last.get(node, 0))
    return last


def _homes(
    scope: Scope, regions: Regions, vector: Vector, heads: Sequence[NodeHead]
) -> tuple[int | None, Mapping[int, int]]:
    """Hub of the query's region, and those of the nodes, by key; None in a small corpus."""
    version = scope.clock.hubs or scope.store.regions.version()
    level, home = regions.places(vector, version)[-1]
    if not level or not heads:
        return None, {}
    keys, vectors = [head.key for head in heads], [head.vector for head in heads]
    return home, regions.of_nodes(keys, vectors, level, version)
