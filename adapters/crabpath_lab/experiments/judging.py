"""Verdicts by 95 % intervals over seeds: a line that an interval crosses decides nothing."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from crabpath_lab.experiments.experiment import (
    Answer,
    Criterion,
    ExperimentVerdict,
    Interval,
    VerdictWord,
)

BySeedValues = Sequence[float] | NDArray[np.float64]
"""A figure, or a difference of two: one value per seed."""

TINY = 1e-9
"""The line for what is to be above 0, and not only no less."""

_LEVEL = 0.95
_MOST = 0.5  # a share above it: more often than not
_FEW = 4  # seeds from which on a share of all or none is told from a half
_DIGITS = 4


def mean_interval(values: BySeedValues) -> Interval | None:
    """Compute the 95 % interval of the mean of one value per seed, by Student's t.

    Equal values have an interval of one point. None of a single seed, and of fewer than four equal
    values, which do not tell how far they spread.
    """
    count = len(values)
    if count < 2 or (count < _FEW and np.ptp(values) == 0):  # noqa: PLR2004  one has no spread
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(count)
    half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1)) * error
    return round(mean - half, _DIGITS), round(mean + half, _DIGITS)


def compare_mean(
    name: str, values: BySeedValues, *, least: float = -math.inf, most: float = math.inf
) -> Criterion:
    """Judge by its interval whether the mean over seeds lies from ``least`` to ``most``."""
    interval = mean_interval(values)
    answer = _compare(interval, least, most)
    return Criterion(name, round(float(np.mean(values)), _DIGITS), interval, answer)


def compare_share(name: str, happened: Sequence[bool]) -> Criterion:
    """Judge by Wilson's interval whether something happens with more than half of all seeds."""
    found = stats.binomtest(sum(happened), len(happened)).proportion_ci(_LEVEL, "wilson")
    ends = (round(float(found.low), _DIGITS), round(float(found.high), _DIGITS))
    interval = ends if len(happened) > 1 else None
    return Criterion(
        name, round(float(np.mean(happened)), _DIGITS), interval, _compare(interval, _MOST, 1.0)
    )


def require_always(name: str, happened: Sequence[bool]) -> Criterion:
    """Judge whether something that is promised, not a tendency, held in every seed."""
    mean = round(float(np.mean(happened)), _DIGITS)
    answer: Answer = "yes" if all(happened) else "no"
    return Criterion(name, mean, None, answer if len(happened) > 1 else "undecided")


def _compare(interval: Interval | None, least: float, most: float) -> Answer:
    if interval is None:
        return "undecided"
    low, high = interval
    if low >= least and high <= most:
        return "yes"
    return "no" if high < least or low > most else "undecided"


def conclude(
    reason: str, held: Sequence[Criterion], better: Sequence[Criterion] = ()
) -> ExperimentVerdict:
    """Give the verdict on a claim.

    Args:
        reason: The figures, in a sentence.
        held: Criteria of the claim: one "no" refutes it, and it is reproduced when all say yes.
        better: Criteria of more than the claim, which may be the same ones.
    """
    answers = {one.answer for one in held}
    word: VerdictWord = "reproduced"
    if "no" in answers:
        word = "not reproduced"
    elif "undecided" in answers:
        word = "undecided"
    elif better and all(one.answer == "yes" for one in better):
        word = "better"
    criteria = tuple(dict.fromkeys((*held, *better)))
    return ExperimentVerdict(word, reason, criteria)
