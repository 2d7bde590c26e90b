"""Maintenance: prunes unused learned data, connects isolated nodes, bounds the logs."""

from crabpath_retrievers.parts.operation.maintenance.runner import (
    MAINTENANCE_STEPS,
    MaintenanceReport,
    MaintenanceRunner,
    StepReport,
)

__all__ = ["MAINTENANCE_STEPS", "MaintenanceReport", "MaintenanceRunner", "StepReport"]
