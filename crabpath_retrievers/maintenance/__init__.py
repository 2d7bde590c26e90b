"""Maintenance: prunes unused learned data, connects isolated nodes, bounds the logs."""

from crabpath_retrievers.maintenance.report import MaintenanceReport, StepReport
from crabpath_retrievers.maintenance.upkeep import STEPS, Upkeep

__all__ = ["STEPS", "MaintenanceReport", "StepReport", "Upkeep"]
