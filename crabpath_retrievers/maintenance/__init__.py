"""Maintenance: what is dead is shed, what is alone is connected, logs stay bounded."""

from crabpath_retrievers.maintenance.report import MaintenanceReport, StepReport
from crabpath_retrievers.maintenance.upkeep import STEPS, Upkeep

__all__ = ["STEPS", "MaintenanceReport", "StepReport", "Upkeep"]
