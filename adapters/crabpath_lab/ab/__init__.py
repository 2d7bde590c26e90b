"""A/B trials of two configurations of a memory in production; see docs/how-to/ab-test.md."""

from crabpath_lab.ab.comparison import TrialReport
from crabpath_lab.ab.trial import Trial, aretrieve_nearest, retrieve_nearest
from crabpath_retrievers.config.maintenance import TrialSettings

__all__ = ["Trial", "TrialReport", "TrialSettings", "aretrieve_nearest", "retrieve_nearest"]
