"""The baseline: the running mean of outcomes with which each outcome is compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from crabpath_retrievers.core.feedback import validate_outcome

MOST_LATER = 1000
"""Most later outcomes through which one is taken out of the mean: it has a share of 4e-7 there."""

_MAX_COUNT = 100
_PRIOR_MEAN, _PRIOR_COUNT = 0.5, 4.0  # Beta(3, 1) on success, as outcomes in [-1, 1]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The running mean of outcomes, b.

    The baseline of REINFORCE (Williams 1992, §3; Sutton & Barto 2018, §13.4).

    Attributes:
        mean: Mean of the outcomes, in [-1, 1]; 0 before the first.
        count: Number of outcomes. From 100 on the mean is exponential: the share of an outcome
            halves every 69 turns.
    """

    mean: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        """Validate the mean.

        Raises:
            InvalidInputError: It is no number in [-1, 1].
        """
        validate_outcome(self.mean, name="the mean outcome")

    @property
    def evidence(self) -> float:
        """Weight of an outcome without stated use as evidence about documents, in [0, 1].

        ``2 P(success) - 1``, at least 0, with the mean of a Beta(3, 1) posterior as P(success).
        Where chains fail as often as not, a failure was to be expected whatever was returned, and a
        success does not show that what was returned is right for other questions.
        """
        count = min(self.count, _MAX_COUNT)
        total = count * self.mean + _PRIOR_COUNT * _PRIOR_MEAN
        return max(0.0, total / (count + _PRIOR_COUNT))

    def with_outcome(self, z: float) -> "Baseline":
        """Return the baseline after one more outcome; compare that outcome with the one before it.

        Args:
            z: Outcome of a turn, in [-1, 1].
        """
        count = self.count + 1
        return _make_baseline(self.mean + (z - self.mean) / min(count, _MAX_COUNT), count)

    def without(self, z: float, later: Sequence[float]) -> "Baseline":
        """Return the baseline as if one outcome had never entered it.

        Args:
            z: The outcome.
            later: The outcomes that entered after it and still count, in order. What lies further
                back than ``MOST_LATER`` no longer tells in the mean.
        """
        if len(later) > MOST_LATER:
            return Baseline(self.mean, self.count - 1)
        before = self
        for outcome in (*reversed(later), z):
            if before.count <= 1:
                before = Baseline()
                break
            share = 1 / min(before.count, _MAX_COUNT)
            before = _make_baseline((before.mean - share * outcome) / (1 - share), before.count - 1)
        for outcome in later:
            before = before.with_outcome(outcome)
        return before


def _make_baseline(mean: float, count: int) -> Baseline:
    """A baseline; rounding may have carried a mean of ones slightly above one."""
    return Baseline(max(-1.0, min(1.0, mean)), count)


def advantage(z: float, baseline: float) -> float:
    """Return the advantage z - b, clipped to 0 if its sign differs from that of z; in [-2, 2].

    A success below the average changes nothing instead of lowering what it credits, and a failure
    above the average changes nothing instead of raising what it blames. A document that was
    returned and not used (z = 0) is no evidence in either direction: not every answer needs every
    document.

    Args:
        z: Credit, in [-1, 1].
        baseline: b, in [-1, 1].
    """
    if z > 0:
        return max(0.0, z - baseline)
    return min(0.0, z - baseline) if z < 0 else 0.0
