"""The baseline: the running mean of outcomes with which each outcome is compared."""

from dataclasses import dataclass

from crabpath_retrievers.core.feedback import validate_outcome

_MAX_COUNT = 100
_PRIOR_MEAN, _PRIOR_COUNT = 0.5, 4.0  # Beta(3, 1) on success, as outcomes in [-1, 1]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The running mean of outcomes, b.

    The baseline of REINFORCE (Williams 1992, §3; Sutton & Barto 2018, §13.4).

    Attributes:
        mean: Mean of the outcomes, in [-1, 1]; 0 before the first.
        count: Number of outcomes, at most 100. From then on the mean is exponential: the share of
            an outcome halves every 69 turns.
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
        """How far an outcome without stated use tells documents apart, in [0, 1].

        ``2 P(success) - 1``, at least 0, with the mean of a Beta(3, 1) posterior as P(success).
        Where chains fail as often as not, a failure was to be expected whatever was returned, and a
        success does not show that what was returned is right for other questions.
        """
        total = self.count * self.mean + _PRIOR_COUNT * _PRIOR_MEAN
        return max(0.0, total / (self.count + _PRIOR_COUNT))

    def with_outcome(self, z: float) -> "Baseline":
        """Return the baseline after one more outcome; compare that outcome with the one before it.

        Args:
            z: Outcome of a turn, in [-1, 1].
        """
        count = min(self.count + 1, _MAX_COUNT)
        mean = self.mean + (z - self.mean) / count
        # Rounding may carry a mean of ones slightly above one.
        return Baseline(max(-1.0, min(1.0, mean)), count)

    def without(self, z: float, before: int, since: int) -> "Baseline":
        """Return the baseline without one outcome that entered it: inverse of :meth:`with_outcome`.

        Args:
            z: The outcome.
            before: The count before it entered.
            since: Number of outcomes that entered after it and still count.
        """
        if self.count <= 1:
            return Baseline()
        # A plain mean below 100 outcomes; an exponential mean from then on.
        capped = before + 1 + since - _MAX_COUNT
        share = 1 / self.count * (1 - 1 / _MAX_COUNT) ** max(0, min(since, capped))
        mean = (self.mean - share * z) / (1 - share)
        count = self.count if capped > 0 else self.count - 1
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
