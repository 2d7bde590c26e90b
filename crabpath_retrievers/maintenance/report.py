"""What a maintenance did, or would do."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step.

    Attributes:
        step: Its name.
        looked: At how many it looked.
        changed: How many it changed, or would.
        seconds: How long it took.
        detail: More numbers, by name.
    """

    step: str
    looked: int
    changed: int
    seconds: float
    detail: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """All of them.

    Attributes:
        run: Id by which it can be undone; empty for a dry run.
        dry_run: Whether nothing was changed.
        steps: In the order in which they ran.
    """

    run: str
    dry_run: bool
    steps: Sequence[StepReport]

    @property
    def changed(self) -> int:
        """How much was changed in all."""
        return sum(step.changed for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain, JSON-safe data."""
        return {**asdict(self), "changed": self.changed}
