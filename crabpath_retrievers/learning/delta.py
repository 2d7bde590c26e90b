"""Changes of learned weights, by the node ids that turn records use."""

from typing import NamedTuple

EdgeName = tuple[str, str, str]
"""An edge: id of the node that it leaves, id of the one it leads to, label of its kind."""

Pair = tuple[str, str]
"""Ids of two nodes between which no edge stands yet."""

ROUNDING = 1e-9
"""A count of fractions may miss a whole number by this."""


class LearnedDelta(NamedTuple):
    """A change of the weight of one edge.

    Attributes:
        source: Id of the source node.
        target: Id of the target node; None for STOP.
        kind: Label of the edge kind, as in records (``EdgeKind.label``).
        delta: Added to the weight, which stays in [-1, 1].
    """

    source: str
    target: str | None
    kind: str
    delta: float
