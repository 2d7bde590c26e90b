"""What an outcome is compared with: the running mean of earlier ones."""

from dataclasses import dataclass

from crabpath_retrievers.outcome import learnable

_MAX_COUNT = 100


@dataclass(frozen=True, slots=True)
class Baseline:
    """b, the mean outcome so far (REINFORCE with a baseline: Williams 1992, §3).

    Attributes:
        mean: Of the outcomes, in [-1, 1]; 0 before the first.
        count: How many it rests on, at most 100: from then on old outcomes fade, half of their
            share in 69 turns, so that the mean follows what changes.
    """

    mean: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        """Refuse a mean that no outcomes can have.

        Raises:
            InvalidInputError: It is no number in [-1, 1].
        """
        learnable(self.mean, name="the mean outcome")

    def with_outcome(self, z: float) -> "Baseline":
        """The baseline after one more outcome; compare that one with the baseline before it.

        Args:
            z: Outcome of a turn, in [-1, 1].

        Raises:
            InvalidInputError: z is no number in [-1, 1].
        """
        count = min(self.count + 1, _MAX_COUNT)
        mean = self.mean + (learnable(z) - self.mean) / count
        # Rounding may carry a mean of ones a hair beyond one.
        return Baseline(max(-1.0, min(1.0, mean)), count)

    def without(self, z: float, before: int, since: int) -> "Baseline":
        """The baseline without one outcome that entered it: the inverse of :meth:`updated`.

        Args:
            z: The outcome.
            before: The count before it entered.
            since: How many have entered since, and stand.
        """
        if self.count <= 1:
            return Baseline()
        # A plain mean while it rests on fewer than 100; then each further one takes its share.
        capped = before + 1 + since - _MAX_COUNT
        share = 1 / self.count * (1 - 1 / _MAX_COUNT) ** max(0, min(since, capped))
        mean = (self.mean - share * z) / (1 - share)
        count = self.count if capped > 0 else self.count - 1
        return Baseline(max(-1.0, min(1.0, mean)), count)


def advantage(z: float, baseline: float) -> float:
    """Of z over b, but never against the sign of z (design, P6), in [-2, 2].

    That is z - b, or 0 where it would point the other way.

    A success below the average teaches nothing rather than lowering what it credits, a failure
    above the average nothing rather than raising what it blames. A document that was returned and
    not used (z = 0) is no evidence either way: not every answer needs every document.

    Args:
        z: Credit, in [-1, 1].
        baseline: b, in [-1, 1].
    """
    if z > 0:
        return max(0.0, z - baseline)
    return min(0.0, z - baseline) if z < 0 else 0.0
