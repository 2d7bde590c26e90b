"""Settings of A/B trials: how much is enough, and what counts as failed (document 002 §5.4)."""

import math
from dataclasses import dataclass

from crabpath_retrievers.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """When a trial may be judged, and when it is ended.

    Attributes:
        directional: Turns of each arm from which a tendency is told.
        decisive: Turns of each arm from which promotion is decided.
        sessions: Units (sessions, or users) of each arm from which an interval is trusted.
        checkpoint: Turns of each arm, since the last checkpoint, from which a new one is made.
        patience: Seconds that feedback may take: a checkpoint counts only turns older than these.
        fail_ratio: A checkpoint is bad when the correction rate of the treatment is above that of
            the control times this.
        fail_checkpoints: So many bad checkpoints in a row end the trial.
        confidence: Of the intervals, in (0, 1).
        resamples: Of the bootstrap.
        seed: Of the bootstrap.
    """

    directional: int = 500
    decisive: int = 2000
    sessions: int = 20
    checkpoint: int = 100
    patience: float = 900.0
    fail_ratio: float = 1.2
    fail_checkpoints: int = 2
    confidence: float = 0.95
    resamples: int = 9999
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what could not be judged by.

        Raises:
            InvalidInputError: A number is out of its range.
        """
        least = {"sessions": 2, "resamples": 100, "seed": 0}
        counts = ("directional", "decisive", "checkpoint", "fail_checkpoints", *least)
        for name in counts:
            value, low = getattr(self, name), least.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                msg = f"{name} of a trial must be a whole number of at least {low}, not {value!r}"
                raise InvalidInputError(msg)
        if self.decisive < self.directional:
            msg = f"decisive ({self.decisive}) must not be below directional ({self.directional})"
            raise InvalidInputError(msg)
        _require("patience", self.patience, 0.0, math.inf, closed=True)
        _require("fail_ratio", self.fail_ratio, 1.0, math.inf, closed=True)
        _require("confidence", self.confidence, 0.0, 1.0)


def _require(name: str, value: object, low: float, high: float, *, closed: bool = False) -> None:
    number = float(value) if isinstance(value, (int, float)) else math.nan
    if not (low < number < high or (closed and number == low)):
        words = f"at least {low:g}" if closed else f"between {low:g} and {high:g}"
        msg = f"{name} of a trial must be a number {words}, not {value!r}"
        raise InvalidInputError(msg)
