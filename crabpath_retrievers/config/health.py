"""Settings of health: what is measured, and the range in which each metric is healthy."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from crabpath_retrievers.config.base import Count, Range, ValidatedSettings, complete_ranges
from crabpath_retrievers.errors import InvalidInputError

# [CrabPath], as shares instead of per cent.
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
"""Ranges of the CrabPath paper, by metric."""

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
"""Names of the eight metrics, in the order of the paper."""


class HealthSettings(ValidatedSettings):
    """Measures of a memory, and their healthy ranges."""

    ranges: Annotated[
        Mapping[str, Range],
        PlainValidator(complete_ranges("metric of health", OURS)),
    ] = Field(default_factory=lambda: OURS)
    """Least and greatest healthy value by metric, in the unit of the metric. Metrics that are not
    given keep their range."""
    min_observations: Count = 10
    """Observations from which a metric is judged; with fewer it is only reported."""
    max_turns: Count = 100
    """Latest turns that are measured."""
    max_nodes: Count = 2000
    """Chunks of documents that are sampled, at most."""
    max_weights: Count = 20_000
    """Learned weights, and pair counts, that are sampled, at most."""
    max_reports: Count = 500
    """Reports kept per namespace."""

    @classmethod
    def preset(cls, name: Literal["default", "paper"]) -> "HealthSettings":
        """The ranges for the default graph, or those of the CrabPath paper."""
        presets = {"default": OURS, "paper": PAPER}
        if name not in presets:
            msg = f"unknown preset {name!r} of health: use 'default' or 'paper'"
            raise InvalidInputError(msg)
        return cls(ranges=presets[name])
