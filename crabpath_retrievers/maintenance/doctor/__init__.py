"""Diagnoses a store without changing it; each finding comes with a fix."""

from crabpath_retrievers.maintenance.doctor.checks import Diagnosis, Finding
from crabpath_retrievers.maintenance.doctor.run import examine

__all__ = ["Diagnosis", "Finding", "examine"]
