"""Intervals of means and paired comparisons, by scipy; percentiles and calibration, by numpy."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, permutation_test

_SEED = 0
_RESAMPLES = 9999
_BINS = 10
_BATCH_NUMBERS = 4_000_000  # numbers that one batch of resamples may hold


def compare_paired(a: Sequence[float], b: Sequence[float], *, seed: int = _SEED) -> dict[str, Any]:
    """Compute the paired difference a − b with 95 % BCa bootstrap interval and permutation p.

    Both have one score per query, in the same order.
    """
    difference = np.asarray(a) - np.asarray(b)
    ci95 = bootstrap_interval(difference, seed=seed)
    p = None
    if ci95 is not None:
        test = permutation_test(
            (difference,),
            np.mean,
            permutation_type="samples",
            n_resamples=_RESAMPLES,
            batch=_batch_size(difference),
            rng=seed,
        )
        p = round(float(test.pvalue), 4)
    return {"difference": round(float(difference.mean()), 4), "ci95": ci95, "p": p}


def bootstrap_interval(
    values: Sequence[float] | NDArray[np.float64], *, seed: int = _SEED
) -> list[float] | None:
    """Bootstrap the 95 % BCa interval of the mean of one value per query.

    None where it cannot be estimated: all values are equal, or they are too few.
    """
    given = np.asarray(values, dtype=np.float64)
    if not np.any(given != given[0]):
        return None
    found = bootstrap(
        (given,), np.mean, method="BCa", n_resamples=_RESAMPLES, batch=_batch_size(given), rng=seed
    ).confidence_interval
    ends = [round(float(end), 4) for end in found]
    return ends if np.all(np.isfinite(ends)) else None


def bootstrap_ratio(
    above: NDArray[np.float64], below: NDArray[np.float64], *, seed: int = _SEED
) -> tuple[float | None, list[float] | None]:
    """Compute the ratio of means of values paired by query, with a 95 % percentile interval.

    None without a mean of ``below`` above 0.
    """
    if below.mean() <= 0:
        return None, None
    draws = np.random.default_rng(seed).integers(len(below), size=(_RESAMPLES, len(below)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = above[draws].mean(axis=1) / below[draws].mean(axis=1)
    ends = [round(float(end), 4) for end in np.percentile(ratios, [2.5, 97.5])]
    return round(float(above.mean() / below.mean()), 4), ends if np.all(np.isfinite(ends)) else None


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """Compute median and 95th percentile, as ``p50`` and ``p95``."""
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}


def _batch_size(values: NDArray[np.float64]) -> int:
    return max(1, _BATCH_NUMBERS // values.size)


def measure_calibration(labelled: Iterable[tuple[float, bool]]) -> dict[str, Any]:
    """Measure the expected calibration error in ten equal bins (Guo et al. 2017, eq. 3).

    Args:
        labelled: Probability of relevance in [0, 1] and whether it is relevant, of each document.

    Returns:
        ``ece``, and ``bins`` for a reliability diagram: count, mean probability, share relevant.
    """
    given, right = np.array([*labelled], dtype=np.float64).reshape(-1, 2).T
    places = np.minimum((given * _BINS).astype(int), _BINS - 1)
    parts = [(given[places == place], right[places == place]) for place in np.unique(places)]
    bins = [[len(of), round(of.mean(), 4), round(share.mean(), 4)] for of, share in parts]
    error = sum(abs(float((of - share).sum())) for of, share in parts) / max(1, len(given))
    return {"ece": round(error, 4), "bins": bins}
