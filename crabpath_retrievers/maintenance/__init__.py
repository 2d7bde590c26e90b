"""Maintenance: prunes unused learned data, connects isolated nodes, bounds the logs."""

from crabpath_retrievers.maintenance.runner import (
    MAINTENANCE_STEPS,
    MaintenanceReport,
    MaintenanceRunner,
    StepReport,
)

__all__ = ["MAINTENANCE_STEPS", "MaintenanceReport", "MaintenanceRunner", "StepReport"]
