"""The autotuner: adjusts four knobs per namespace, within limits, by health metrics."""

from crabpath_retrievers.autotune.autotuner import Autotuner, TuneReport
from crabpath_retrievers.autotune.deciding import tune
from crabpath_retrievers.autotune.past import Adjustment, Past

__all__ = ["Adjustment", "Autotuner", "Past", "TuneReport", "tune"]
