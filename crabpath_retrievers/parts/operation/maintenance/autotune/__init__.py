"""The autotuner: adjusts four knobs per namespace, within limits, by health metrics."""

from crabpath_retrievers.parts.operation.maintenance.autotune.decide import (
    Adjustment,
    TuningHistory,
    decide_adjustments,
)
from crabpath_retrievers.parts.operation.maintenance.autotune.tuner import (
    Autotuner,
    TuneReport,
    tune_after_lesson,
)

__all__ = [
    "Adjustment",
    "Autotuner",
    "TuneReport",
    "TuningHistory",
    "decide_adjustments",
    "tune_after_lesson",
]
