"""Change records of A/B trials: where a trial stands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeepTrial:
    """Keep the state of a trial; raises ``ConflictError`` when somebody else changed it.

    Attributes:
        name: Of the trial.
        before: The state from which this one was computed, as JSON; None for a new trial.
        after: The state from now on, as JSON.
    """

    name: str
    before: str | None
    after: str
