"""Settings of what operates a memory: health, maintenance and the autotuner ([CrabPath]).

What each healthy metric may be; what maintenance drops, connects and keeps; the four knobs of a
namespace with their guard rails and steps.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from crabpath_retrievers.config.base import (
    Count,
    Neighbours,
    Positive,
    Range,
    Share,
    ValidatedSettings,
    complete_mapping,
    complete_ranges,
)
from crabpath_retrievers.core.text import format_value, is_number, to_plain
from crabpath_retrievers.errors import InvalidInputError

# [CrabPath], as shares instead of per cent.
PAPER_RANGES: Mapping[str, Range] = MappingProxyType(
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

DEFAULT_RANGES: Mapping[str, Range] = MappingProxyType(
    {
        **PAPER_RANGES,
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

METRICS = tuple(PAPER_RANGES)
"""Names of the eight metrics, in the order of the paper."""


class HealthSettings(ValidatedSettings):
    """Measures of a memory, and their healthy ranges."""

    ranges: Annotated[
        Mapping[str, Range],
        PlainValidator(complete_ranges("metric of health", DEFAULT_RANGES)),
    ] = Field(default_factory=lambda: DEFAULT_RANGES)
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
        presets = {"default": DEFAULT_RANGES, "paper": PAPER_RANGES}
        if name not in presets:
            msg = f"unknown preset {name!r} of health: use 'default' or 'paper'"
            raise InvalidInputError(msg)
        return cls(ranges=presets[name])


Score = Annotated[float, Field(ge=-1000, le=1000)]
"""A part of a survival score."""


class MaintenanceSettings(ValidatedSettings):
    """Rules by which maintenance drops, connects and keeps."""

    faded_distance: Share = 0.01
    """A learned weight this near to its floor is dropped: it has faded."""
    min_weight: Share = 0.05
    """A learned edge is dropped below this weight."""
    min_inhibition: Share = 0.01
    """An inhibitory edge is dropped below this absolute weight."""
    min_age_turns: Count = 14
    """Turns since its last change before a weight may be dropped."""
    edge_score: Score = 0.1
    """α: part of the survival score of a note on probation, per edge."""
    use_score: Score = 0.5
    """β: the same, per use of the note."""
    success_score: Score = 1.0
    """γ: the same, for a share of successful uses of 1."""
    age_penalty: Score = 0.5
    """δ: taken from that score per ``min_age_turns`` turns since the last use."""
    connect_neighbours: Neighbours = 3
    """Nodes that a node without edges is connected with."""
    connect_similarity: Share = 0.5
    """Least similarity of nodes that are connected."""
    max_turns: Count = 5_000
    """Turn records kept per namespace."""
    max_feedback: Count = 20_000
    """Latest feedback per namespace whose questions are recalled and that can be undone."""
    max_journal_rows: Count = 10_000
    """Rows of the journal that are kept."""
    batch_size: Count = 5_000
    """Rows that are read and changed at once."""


PAPER_RAILS: Mapping[str, Range] = MappingProxyType(
    {
        "half_life": (20.0, 200.0),
        "promotion_threshold": (2, 10),  # the paper says "never below 2"
        "hebbian_rate": (0.01, 0.12),  # and "capped at 0.12"
        "reflex": (0.8, 0.95),
    }
)
"""Guard rails of the CrabPath paper, by knob."""

DEFAULT_RAILS: Mapping[str, Range] = MappingProxyType(
    {
        **PAPER_RAILS,
        # The default half-life, 2000 turns, was chosen by measurement where edges from the text do
        # not decay; the rail leaves one doubling above it, and below as little as the paper.
        "half_life": (20.0, 4000.0),
    }
)
"""Guard rails for the default graph."""

KNOBS = tuple(PAPER_RAILS)
"""Names of the four knobs."""


WIDEST_RAILS: Mapping[str, Range] = {
    "half_life": (1.0, 1e9),
    "promotion_threshold": (2, 1000),
    "hebbian_rate": (1e-6, 1.0),
    "reflex": (0.0, 1.0),
}
"""Widest guard rails that can be set, by knob."""


class Knobs(ValidatedSettings):
    """The settings that the autotuner changes, for one namespace."""

    half_life: Positive
    """Turns after which a learned weight is half-way at its floor."""
    promotion_threshold: Count
    """Distinct turns of joint use after which a pair becomes an edge."""
    hebbian_rate: Share
    """Step of the edge between two documents used together."""
    reflex: Share
    """Least weight of an edge that is always followed."""


class AutotuneSettings(ValidatedSettings):
    """Settings of the autotuner: when, how far and how fast it changes knobs."""

    enabled: bool = False
    """Whether knobs are changed automatically: after every ``every_feedbacks``, and in maintenance.
    Off: the defaults were chosen by measurement, and healthy metrics do not imply good answers.
    ``tune`` works either way."""
    every_feedbacks: Count = 25
    """Feedbacks of a namespace between two runs."""
    rails: Annotated[
        Mapping[str, Range], PlainValidator(complete_ranges("knob", DEFAULT_RAILS, WIDEST_RAILS))
    ] = Field(default_factory=lambda: DEFAULT_RAILS)
    """Guard rails: least and greatest value by knob, in the unit of the knob. Knobs that are not
    given keep theirs."""
    half_life_factor: Annotated[float, Field(ge=1.01, le=10)] = 2.0
    """One step multiplies or divides the half-life."""
    min_half_life_step: Annotated[float, Field(ge=0.1, le=1_000_000)] = 10.0
    """Turns that one step moves it, at least."""
    hebbian_step: Annotated[float, Field(ge=1e-6, le=1)] = 0.01
    """One step of the Hebbian rate."""
    reflex_step: Annotated[float, Field(ge=1e-6, le=1)] = 0.02
    """One step of the reflex threshold, a weight."""
    max_changes: Annotated[int, Field(ge=1, le=len(KNOBS))] = 2
    """Knobs that one run changes, at most."""
    window_reports: Annotated[int, Field(ge=1, le=100)] = 4
    """Latest health reports in which the memory must not have got much worse."""
    brake_dormant_share: Share = 0.98
    """Share of dormant edges, out of its range, from which the brake is applied."""
    brake_metrics: Annotated[int, Field(ge=1, le=8)] = 3
    """Metrics that have left their range since, from which the brake is applied."""
    rest_runs: Annotated[int, Field(ge=0, le=100)] = 1
    """Runs after a brake that change nothing, so that it can take effect."""
    min_success_chance: Share = 0.2
    """Least probability of success of a change that is tried; a change that was never tried has one
    half."""
    evidence_decay: Share = 0.95
    """Share of the evidence about changes that is left after each run, so that one that failed is
    tried again later."""

    @classmethod
    def preset(cls, name: Literal["default", "paper"]) -> "AutotuneSettings":
        """The rails and steps for the default graph, or those of the CrabPath paper."""
        if name == "default":
            return cls()
        if name == "paper":
            return cls(rails=PAPER_RAILS, half_life_factor=4 / 3)
        msg = f"unknown preset {format_value(name)} of autotune: use 'default' or 'paper'"
        raise InvalidInputError(msg)

    def validate_knobs(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Check values of knobs against their rails, and convert them to stored numbers.

        Raises:
            InvalidInputError: There is no such knob, or its value is beyond its rails.
        """
        complete_mapping("knob", PAPER_RAILS)(knobs)
        checked: dict[str, Any] = {}
        for name, value in zip(knobs, map(to_plain, knobs.values()), strict=True):
            (low, high), whole = self.rails[name], name == "promotion_threshold"
            if not is_number(value) or not low <= value <= high or (whole and value != int(value)):
                kind = "whole number" if whole else "number"
                msg = f"{name} must be a {kind} from {low:g} to {high:g}, not {format_value(value)}"
                raise InvalidInputError(msg)
            checked[name] = int(value) if whole else float(value)
        return checked
