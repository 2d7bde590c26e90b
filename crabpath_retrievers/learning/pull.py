"""Observations of a signed edge: each moves its weight a share of the way to a bound."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import EdgeId, LearnedDelta


class EdgeObservation(NamedTuple):
    """One observation of an edge.

    Attributes:
        source, target: Ids of the nodes.
        kind: Kind of the edge.
        strength: Its strength, in [0, 1].
        bound: The value that the weight moves towards, in [-1, 1].
    """

    source: str
    target: str
    kind: EdgeKind
    strength: float
    bound: float = 1.0


def make_signed_observation(
    source: str, target: str, kind: EdgeKind, value: float
) -> EdgeObservation:
    """Build a signed observation: towards 1 after a success, towards -1 after a failure."""
    return EdgeObservation(source, target, kind, min(1.0, abs(value)), 1.0 if value > 0 else -1.0)


def apply_observations(
    pulls: Iterable[EdgeObservation], existing: Mapping[EdgeId, float], rate: float
) -> list[LearnedDelta]:
    """Return the changes ``h · strength · (bound − w)``, applied one after the other.

    The Hebbian step with a sign. A new edge starts
    from 0. No weight moves away from the sign of its bound, even if a user has set it beyond.

    Args:
        pulls: The observations.
        existing: Weights that the namespace has learned, by edge id.
        rate: h, in (0, 1].
    """
    current: dict[EdgeId, float] = {}
    deltas = []
    for pull in pulls:
        name = (pull.source, pull.target, pull.kind.label)
        weight = current.get(name, existing.get(name, 0.0))
        step = rate * pull.strength * (pull.bound - weight)
        step = max(0.0, step) if pull.bound > 0 else min(0.0, step)
        if step:
            current[name] = weight + step
            deltas.append(LearnedDelta(*name, step))
    return deltas
