"""Maintenance: prunes unused learned data, connects isolated nodes, bounds the logs."""

from crabpath_retrievers.maintenance.report import MaintenanceReport, StepReport
from crabpath_retrievers.maintenance.upkeep import MAINTENANCE_STEPS, MaintenanceRunner

__all__ = ["MAINTENANCE_STEPS", "MaintenanceReport", "MaintenanceRunner", "StepReport"]
