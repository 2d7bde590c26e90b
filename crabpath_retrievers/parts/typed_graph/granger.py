"""Granger causality between documents: whether the use of one predicts the use of another.

Granger (1969): a series helps to predict another one beyond that one's own past. It does not prove
a cause. The false discovery rate over all pairs is controlled (Benjamini & Hochberg 1995).
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.extras import require_extra

MAX_ENTITIES = 20
"""Number of entities compared, the most used ones: 380 pairs."""

_MIN_ACTIVE_WINDOWS = 5  # windows with a use; fewer would let single events decide
_WINDOWS_PER_TERM = 10  # windows per fitted coefficient
_EPSILON = 1e-12

TimeSeries = NDArray[np.float64]


class Influence(NamedTuple):
    """An entity whose use predicts that of another.

    Attributes:
        source, target: The entities.
        weight: Partial correlation of the target with the past of the source, given its own past,
            in [-1, 1]; the sign is that of the sum of the lagged coefficients.
        q: Smallest false discovery rate at which the pair is significant.
    """

    source: str
    target: str
    weight: float
    q: float


def build_series(uses: Sequence[tuple[int, str, float]], window: int) -> dict[str, TimeSeries]:
    """Sum the values of each of the most used entities per window of turns.

    Uses are ``(turn number, entity, value)``, with values above 0 for use in a success, below 0 for
    blame. All series have shape ``[windows]``; windows without use have 0.
    """
    if not uses:
        return {}
    first = min(turn for turn, _, _ in uses)
    size = (max(turn for turn, _, _ in uses) - first) // window + 1
    series_by_entity: dict[str, TimeSeries] = {}
    for turn, entity, value in uses:
        series = series_by_entity.setdefault(entity, np.zeros(size))
        series[(turn - first) // window] += value
    ranked = sorted(
        series_by_entity,
        key=lambda entity: (-float(np.abs(series_by_entity[entity]).sum()), entity),
    )
    return {entity: series_by_entity[entity] for entity in ranked[:MAX_ENTITIES]}


def find_influences(
    series: Mapping[str, TimeSeries], *, lags: int = 1, level: float = 0.05
) -> list[Influence]:
    """Find the pairs in which the past of one entity predicts the other, strongest first.

    Series that are constant, active in fewer than five windows, or too short for ``lags`` are not
    tested. ``level`` is the false discovery rate over all pairs.
    """
    usable = {name: values for name, values in series.items() if _is_testable(values, lags)}
    pairs = [(a, b) for a, b in permutations(usable, 2) if not _are_identical(usable[a], usable[b])]
    if not pairs:
        return []
    require_extra("influence", "influence")
    from statsmodels.stats.multitest import multipletests

    tests = [_test_pair(usable[a], usable[b], lags) for a, b in pairs]
    is_significant, q, _, _ = multipletests([p for p, _ in tests], alpha=level, method="fdr_bh")
    influential = [
        Influence(a, b, weight, float(rate))
        for (a, b), (_, weight), significant, rate in zip(
            pairs, tests, is_significant, q, strict=True
        )
        if significant
    ]
    return sorted(influential, key=lambda pair: (-abs(pair.weight), pair.source, pair.target))


def _is_testable(values: TimeSeries, lags: int) -> bool:
    long_enough = values.size >= _WINDOWS_PER_TERM * (2 * lags + 1)
    return (
        long_enough
        and int((values != 0).sum()) >= _MIN_ACTIVE_WINDOWS
        and float(np.ptp(values)) > 0
    )


def _are_identical(a: TimeSeries, b: TimeSeries) -> bool:
    """Whether two series are perfectly correlated, so that neither adds to the other."""
    return abs(float(np.corrcoef(a, b)[0, 1])) > 1 - _EPSILON


def _test_pair(source: TimeSeries, target: TimeSeries, lags: int) -> tuple[float, float]:
    """Test whether the past of ``source`` predicts ``target``, by an F test.

    The test is that of ``ssr_ftest`` of ``grangercausalitytests``, which fails on a perfect
    prediction; ``lags`` is how far it looks back.

    Returns:
        p of the hypothesis that it adds nothing; and the strength in [-1, 1], with its sign.
    """
    from statsmodels.regression.linear_model import OLS
    from statsmodels.tsa.tsatools import lagmat

    own_past, source_past = (lagmat(values, lags, trim="both") for values in (target, source))
    past = np.column_stack([np.ones(len(own_past)), own_past])
    with warnings.catch_warnings():
        # If one series is the lagged other one, statsmodels warns of the reduced rank.
        warnings.simplefilter("ignore")
        restricted = OLS(target[lags:], past).fit()
        full = OLS(target[lags:], np.column_stack([past, source_past])).fit()
        if restricted.ssr <= _EPSILON * float(np.square(target).sum()):
            return 1.0, 0.0
        _, p, _ = full.compare_f_test(restricted)
    explained = min(1.0, max(0.0, 1.0 - float(full.ssr) / float(restricted.ssr)))
    lagged_sum = float(np.sum(full.params[-lags:]))
    return (float(p) if math.isfinite(p) else 1.0), math.copysign(math.sqrt(explained), lagged_sum)
