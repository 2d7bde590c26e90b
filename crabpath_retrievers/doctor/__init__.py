"""Diagnoses a store without changing it; each finding comes with a fix."""

from crabpath_retrievers.doctor.examine import examine
from crabpath_retrievers.doctor.finding import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "examine"]
