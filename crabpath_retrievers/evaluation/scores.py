"""Scores per query and paired comparisons, from ir-measures and scipy."""

from collections.abc import Mapping, Sequence
from typing import Any

import ir_measures
import numpy as np
from ir_measures import R
from scipy.stats import bootstrap, permutation_test

_SEED = 0


def scores(
    qrels: Mapping[str, frozenset[str]], run: Mapping[str, Sequence[str]], k: int
) -> dict[str, list[float]]:
    """Per query, in the order of ``qrels``: recall@k, and full@k (all gold among the first k).

    Args:
        qrels: Relevant documents by query; a query without an answer in ``run`` scores 0.
        run: Ranked documents by query, best first.
        k: Cut-off.
    """
    judged = {query: dict.fromkeys(relevant, 1) for query, relevant in qrels.items()}
    ranked = {
        query: {document: float(-place) for place, document in enumerate(run.get(query, ()))}
        for query in qrels
    }
    values = {m.query_id: float(m.value) for m in ir_measures.iter_calc([R @ k], judged, ranked)}
    recall = [values.get(query, 0.0) for query in qrels]
    return {"recall": recall, "full": [float(value >= 1.0) for value in recall]}


def compared(a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Paired difference a − b with 95 % BCa bootstrap interval and permutation p."""
    difference = np.asarray(a) - np.asarray(b)
    if not np.any(difference != difference[0]):
        return {"difference": round(float(difference.mean()), 4), "ci95": None, "p": None}
    interval = bootstrap(
        (difference,), np.mean, method="BCa", n_resamples=9999, rng=_SEED
    ).confidence_interval
    test = permutation_test(
        (difference,), np.mean, permutation_type="samples", n_resamples=9999, rng=_SEED
    )
    return {
        "difference": round(float(difference.mean()), 4),
        "ci95": [round(float(interval.low), 4), round(float(interval.high), 4)],
        "p": round(float(test.pvalue), 4),
    }
