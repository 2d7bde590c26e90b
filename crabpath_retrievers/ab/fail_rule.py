"""When a trial has failed: its treatment is corrected too often, several times in a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was seen between the checkpoint before and this one.

    Attributes:
        since, until: When the turns were asked, in seconds since the epoch.
        control_turns, treatment_turns: How many.
        control_corrected, treatment_corrected: How many of them were corrected.
        worse: Whether the treatment was corrected too often.
    """

    since: float
    until: float
    control_turns: int
    control_corrected: int
    treatment_turns: int
    treatment_corrected: int
    worse: bool


def is_worse(control: tuple[int, int], treatment: tuple[int, int], ratio: float) -> bool:
    """Whether the correction rate of the treatment is above that of the control times ``ratio``.

    Exactly at the bound it is not; computed in whole numbers.

    Args:
        control: ``(turns, corrected)``.
        treatment: The same.
        ratio: Such as 1.2 for 20 % more.
    """
    bound = Fraction(str(ratio)) * control[1] * treatment[0]
    return treatment[1] * control[0] > bound


def has_failed(checkpoints: Sequence[Checkpoint], row: int) -> bool:
    """Whether the last ``row`` checkpoints all were worse."""
    last = checkpoints[-row:]
    return len(last) == row and all(checkpoint.worse for checkpoint in last)
