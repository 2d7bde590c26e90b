"""Maintenance: prunes unused learned data, connects isolated nodes, bounds the logs."""

from crabpath_retrievers.parts.operation.maintenance.autotune import (
    Autotuner,
    TuneReport,
    TuningHistory,
    decide_adjustments,
)
from crabpath_retrievers.parts.operation.maintenance.health import (
    EdgeGroup,
    EdgeTally,
    HealthMeasurements,
    HealthQueries,
    HealthReport,
    Metric,
    TurnFacts,
    assess_health,
    count_edges,
    load_past_reports,
    measure_health,
)
from crabpath_retrievers.parts.operation.maintenance.rules import (
    AutoNote,
    LearnedWeight,
    compute_survival_score,
    find_faded_weights,
    find_neighbours,
    is_expired,
    make_similar_edges,
)

__all__ = [
    "AutoNote",
    "Autotuner",
    "EdgeGroup",
    "EdgeTally",
    "HealthMeasurements",
    "HealthQueries",
    "HealthReport",
    "LearnedWeight",
    "Metric",
    "TuneReport",
    "TuningHistory",
    "TurnFacts",
    "assess_health",
    "compute_survival_score",
    "count_edges",
    "decide_adjustments",
    "find_faded_weights",
    "find_neighbours",
    "is_expired",
    "load_past_reports",
    "make_similar_edges",
    "measure_health",
]
