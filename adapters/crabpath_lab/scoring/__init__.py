"""From rankings to scores, and from scores to intervals and differences."""

from crabpath_lab.scoring.chunk_level import score_chunks
from crabpath_lab.scoring.measures import score_rankings
from crabpath_lab.statistics import bootstrap_interval, compare_paired, measure_calibration

__all__ = [
    "bootstrap_interval",
    "compare_paired",
    "measure_calibration",
    "score_chunks",
    "score_rankings",
]
