"""The autotuner: adjusts four knobs per namespace, within limits, by health metrics."""

from crabpath_retrievers.autotune.autotuner import Autotuner, TuneReport
from crabpath_retrievers.autotune.deciding import decide_adjustments
from crabpath_retrievers.autotune.past import Adjustment, TuningHistory

__all__ = ["Adjustment", "Autotuner", "TuneReport", "TuningHistory", "decide_adjustments"]
