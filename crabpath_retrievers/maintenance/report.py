"""Reports of maintenance runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of one maintenance step.

    Attributes:
        step: Name of the step.
        looked: Number of items that it examined.
        changed: Number of items that it changed, or would change in a dry run.
        seconds: Duration.
        detail: Further counts by name.
    """

    step: str
    looked: int
    changed: int
    seconds: float
    detail: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """Result of a maintenance run.

    Attributes:
        run: Id for undoing the run; empty for a dry run.
        dry_run: Whether nothing was changed.
        steps: Results of the steps, in the order in which they ran.
    """

    run: str
    dry_run: bool
    steps: Sequence[StepReport]

    @property
    def total_changed(self) -> int:
        """Number of items that all steps changed, or would change in a dry run."""
        return sum(step.changed for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        return {**asdict(self), "changed": self.total_changed}
