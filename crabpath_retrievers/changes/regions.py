"""Change records of regions: what became of the steps that were taken in them."""

from dataclasses import dataclass
from typing import NamedTuple

Place = tuple[int, int]
"""A region: level, and key of its hub. (0, 0) is everything."""


class Step(NamedTuple):
    """What is added to the counts of one step; taken back when negative.

    Attributes:
        level: Of the regions; 0 for all of them together.
        region: Key of the hub whose region it was taken in; 0 at level 0.
        task: Type of the task; empty for all together.
        action: Its type; empty counts what came by, whatever it did.
        next: Key of the hub whose region it led to; 0 where that is not known.
        trials: How often it was taken.
        wins: How often it succeeded, each time in [0, 1].
        ends, end_wins: The same two for those steps that ended their episode. Where the action is
            empty: the count of turns, and the sum of the mean credit of what they returned.
    """

    level: int
    region: int
    task: str
    action: str
    next: int
    trials: float
    wins: float
    ends: float = 0.0
    end_wins: float = 0.0

    @property
    def place(self) -> tuple[int, int, str, str, int]:
        """What is counted, without the counts."""
        return self[:5]

    @property
    def counts(self) -> tuple[float, float, float, float]:
        """The counts alone."""
        return self[5:]


@dataclass(frozen=True, slots=True)
class CountSteps:
    """Add to what a namespace knows of steps; no count falls below 0."""

    namespace: str
    steps: tuple[Step, ...]
