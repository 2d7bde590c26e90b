"""Change record of A/B trials: the state of a trial."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeepTrial:
    """Write the state of a trial; raises ``ConflictError`` when it changed in the meantime.

    Attributes:
        name: Name of the trial.
        before: State from which the new one was computed, as JSON; None for a new trial.
        after: New state, as JSON.
    """

    name: str
    before: str | None
    after: str
