"""The fail rule: the treatment is corrected too often at several checkpoints in a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class TrialCheckpoint:
    """Counts of the turns since the checkpoint before.

    Attributes:
        since, until: Period of the turns, in seconds since the epoch.
        control_turns, treatment_turns: Number of turns.
        control_corrected, treatment_corrected: Number of corrected turns.
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

    Equality does not count; the comparison is exact, in rational numbers.

    Args:
        control: ``(turns, corrected)``.
        treatment: ``(turns, corrected)``.
        ratio: For example 1.2 for 20 % more.
    """
    bound = Fraction(str(ratio)) * control[1] * treatment[0]
    return treatment[1] * control[0] > bound


def has_failed(checkpoints: Sequence[TrialCheckpoint], row: int) -> bool:
    """Whether all of the last ``row`` checkpoints were worse."""
    last = checkpoints[-row:]
    return len(last) == row and all(checkpoint.worse for checkpoint in last)
