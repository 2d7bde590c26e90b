"""How an observation moves a signed edge: a share of the way towards its bound."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import EdgeName, LearnedDelta


class Pull(NamedTuple):
    """One observation of an edge.

    Attributes:
        source, target: Ids of the nodes.
        kind: Of the edge.
        strength: How much it counts, in [0, 1].
        bound: What the weight moves towards, in [-1, 1].
    """

    source: str
    target: str
    kind: EdgeKind
    strength: float
    bound: float = 1.0


def signed(source: str, target: str, kind: EdgeKind, value: float) -> Pull:
    """An observation with its sign: towards 1 after a success, towards -1 after a failure."""
    return Pull(source, target, kind, min(1.0, abs(value)), 1.0 if value > 0 else -1.0)


def moved(
    pulls: Iterable[Pull], existing: Mapping[EdgeName, float], rate: float
) -> list[LearnedDelta]:
    """``h · strength · (bound − w)`` for each, one after the other, as Hebbian edges move.

    An edge that is new starts from 0. None moves away from the sign of its bound, also where
    somebody has set a weight beyond it.

    Args:
        pulls: What was observed.
        existing: Weights that the namespace has learned, by name.
        rate: h, in (0, 1].
    """
    current: dict[EdgeName, float] = {}
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
