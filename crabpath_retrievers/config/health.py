"""Settings of health: what is measured, and the ranges in which a memory is well."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

Range = tuple[float, float]
"""Least and greatest value of a metric that is well."""

# Document 000 §5.1, shares instead of per cent.
PAPER: Mapping[str, Range] = MappingProxyType(
    {
        "avg_nodes_fired_per_query": (1.0, 2.0),
        "cross_file_edge_pct": (0.0, 0.15),
        "dormant_pct": (0.70, 0.95),
        "reflex_pct": (0.0, 0.10),
        "context_compression": (0.0, 0.20),
        "proto_promotion_rate": (0.0, 0.50),
        "reconvergence_rate": (0.0, 0.0),
        "orphan_nodes": (0.0, 0.0),
    }
)
"""Ranges of document 000, by metric."""

OURS: Mapping[str, Range] = MappingProxyType(
    {
        **PAPER,
        # A walk enters up to 24 nodes, 8 of them from search: half of a node per query is a graph
        # that does nothing, three quarters of the 16 that are left is one that spends its budget.
        "avg_nodes_fired_per_query": (0.5, 12.0),
        # The text itself links documents; only where nothing does is the graph of no use.
        "cross_file_edge_pct": (0.01, 1.0),
        # Nothing that the text says fades, and other edges are born of outcomes alone: there is
        # no noise that must have faded. All of it faded is a memory that has lost what it learned.
        "dormant_pct": (0.0, 0.95),
        # Outcomes alone are counted, so a workload that asks again promotes most of its pairs.
        "proto_promotion_rate": (0.0, 0.90),
    }
)
"""Ranges for the default graph; where they differ from the paper's, with the reason beside them."""

METRICS = tuple(PAPER)
"""Names of the eight metrics, in the order of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """What is measured of a memory, and what counts as well.

    Attributes:
        ranges: Least and greatest value by metric; metrics that are left out keep their range.
        least: Observations from which a metric is judged; with fewer it is only told.
        turns: Latest turns that are looked at.
        nodes: Document chunks that are sampled; fewer than these are all looked at.
        learned: Learned weights, and counts of pairs, that are sampled at most.
        kept: Reports kept per namespace.
    """

    ranges: Mapping[str, Range] = field(default_factory=lambda: OURS)
    least: int = 10
    turns: int = 100
    nodes: int = 2000
    learned: int = 20_000
    kept: int = 500

    def __post_init__(self) -> None:
        """Complete the ranges, and refuse those that cannot be kept.

        Raises:
            InvalidInputError: An unknown metric, a range without two numbers in order, or a size
                below 1.
        """
        if not isinstance(self.ranges, Mapping):
            msg = f"ranges must map names to two numbers, not {shown(self.ranges)}"
            raise InvalidInputError(msg)
        if unknown := [name for name in self.ranges if name not in METRICS]:
            msg = f"{shown(unknown[0])} is no metric of health: use {', '.join(METRICS)}"
            raise InvalidInputError(msg)
        given = {name: _range(name, value) for name, value in self.ranges.items()}
        object.__setattr__(self, "ranges", MappingProxyType({**OURS, **given}))
        for name in ("least", "turns", "nodes", "learned", "kept"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                msg = f"health.{name} must be a whole number of at least 1, not {shown(value)}"
                raise InvalidInputError(msg)

    @classmethod
    def preset(cls, name: Literal["default", "paper"]) -> "HealthSettings":
        """The ranges for the default graph, or those of document 000."""
        presets = {"default": OURS, "paper": PAPER}
        if name not in presets:
            msg = f"unknown preset {name!r} of health: use 'default' or 'paper'"
            raise InvalidInputError(msg)
        return cls(ranges=presets[name])


def _range(name: str, value: Any) -> Range:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not -math.inf < low <= high < math.inf:
        msg = f"the range of {name} must be two numbers, the least one first, not {shown(value)}"
        raise InvalidInputError(msg)
    return low, high
