"""The figures of a run, as one JSON-safe record."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.evaluation.asking import Run
from crabpath_retrievers.evaluation.methods import Found
from crabpath_retrievers.evaluation.scoring.comparison import compared, interval
from crabpath_retrievers.evaluation.scoring.measures import PerQuery
from crabpath_retrievers.evaluation.speed.timing import percentiles

OWN = ("cold", "learned")  # methods of this project, each compared with all others
_LLM_CALLS = 0  # no method here calls a language model


def by_document(found: Sequence[Found]) -> list[Found]:
    """The first chunk of each document, in the order of the chunks."""
    first: dict[str, Found] = {}
    for chunk in found:
        first.setdefault(chunk.document, chunk)
    return list(first.values())


def figures(
    per_query: PerQuery, run: Run, returned: Mapping[str, Sequence[Found]], *, seed: int
) -> dict[str, Any]:
    """Means with 95 % intervals, and what the answers cost.

    Args:
        per_query: Scores by measure.
        run: What the method answered, for its times.
        returned: What a caller would get for each query, best first.
        seed: Of the resampling.
    """
    means: dict[str, Any] = {}
    for name, values in per_query.items():
        means[name] = round(float(np.mean(values)), 4)
        means[f"{name}_ci95"] = interval(values, seed=seed)
    return means | {
        "documents_returned": round(float(np.mean([len(f) for f in returned.values()])), 2),
        "context_tokens": round(float(np.mean([_tokens(f) for f in returned.values()])), 1),
        "llm_calls": _LLM_CALLS,
        "latency_ms": percentiles(run.milliseconds),
        "indexing_s": round(run.indexing_s, 2),
    }


def _tokens(found: Sequence[Found]) -> float:
    return sum(len(f.text) for f in found) / Settings().rank.characters_per_token


def comparisons(
    scored: Mapping[str, PerQuery], metrics: Sequence[str], *, seed: int
) -> list[dict[str, Any]]:
    """Every method of this project against each other one, query by query."""
    return [
        {"a": own, "b": other, "metric": metric}
        | compared(scored[own][metric], scored[other][metric], seed=seed)
        for own in OWN
        if own in scored
        for other in scored
        if other != own
        for metric in metrics
    ]
