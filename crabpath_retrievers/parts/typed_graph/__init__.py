"""Typed searches: similarity search that uses typed edges, after [CVX RFC-013].

The document is listed in docs/bibliography.md.
"""

from crabpath_retrievers.parts.typed_graph.granger import (
    MAX_ENTITIES,
    build_series,
    find_influences,
)
from crabpath_retrievers.parts.typed_graph.queries import NodeInfo, TypedQueries, WeightMove
from crabpath_retrievers.parts.typed_graph.rules import (
    MIN_IRRELEVANT,
    EdgeObservation,
    TypedEdgeContext,
    apply_observations,
    learn_typed_edges,
)

__all__ = [
    "MAX_ENTITIES",
    "MIN_IRRELEVANT",
    "EdgeObservation",
    "NodeInfo",
    "TypedEdgeContext",
    "TypedQueries",
    "WeightMove",
    "apply_observations",
    "build_series",
    "find_influences",
    "learn_typed_edges",
]
