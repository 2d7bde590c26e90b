"""A/B trials of two configurations of a memory in production; see docs/how-to/ab-test.md."""

from crabpath_lab.ab.comparison import TrialReport
from crabpath_lab.ab.settings import TrialSettings
from crabpath_lab.ab.trial import Trial, aretrieve_nearest, retrieve_nearest

__all__ = ["Trial", "TrialReport", "TrialSettings", "aretrieve_nearest", "retrieve_nearest"]
