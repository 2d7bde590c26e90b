"""Diagnoses a store without changing it; each finding comes with a fix."""

from crabpath_retrievers.parts.operation.maintenance.doctor.checks import Diagnosis, Finding
from crabpath_retrievers.parts.operation.maintenance.doctor.run import examine

__all__ = ["Diagnosis", "Finding", "examine"]
