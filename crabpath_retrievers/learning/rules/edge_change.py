"""Changes of learned weights, by the node ids that turn records use."""

from typing import NamedTuple

EdgeId = tuple[str, str, str]
"""An edge: ids of source and target, label of the kind."""

NodePair = tuple[str, str]
"""Ids of two nodes without an edge."""

COUNT_TOLERANCE = 1e-9
"""Tolerance for sums of fractional counts."""


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
