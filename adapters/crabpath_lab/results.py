"""The figures of a run, as one JSON-safe record."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crabpath_lab.methods import RetrievedChunk
from crabpath_lab.run_methods import MethodRun
from crabpath_lab.scoring.measures import PerQuery
from crabpath_lab.statistics import (
    bootstrap_interval,
    compare_paired,
    percentiles,
)
from crabpath_retrievers.config import Settings

# Methods of this project, each compared with all others.
OWN_METHODS = ("cold", "routed", "cold+reranker", "learned")


def first_chunks(found: Sequence[RetrievedChunk]) -> list[RetrievedChunk]:
    """Select the first chunk of each document, in the order of the chunks."""
    first: dict[str, RetrievedChunk] = {}
    for chunk in found:
        first.setdefault(chunk.document, chunk)
    return list(first.values())


def summarize_run(
    per_query: PerQuery,
    run: MethodRun,
    returned: Mapping[str, Sequence[RetrievedChunk]],
    *,
    seed: int,
) -> dict[str, Any]:
    """Summarise a run: means with 95 % intervals, and the cost of the answers.

    ``returned`` has the chunks that a caller would get for each query, best first.
    """
    means: dict[str, Any] = {}
    for name, values in per_query.items():
        means[name] = round(float(np.mean(values)), 4)
        means[f"{name}_ci95"] = bootstrap_interval(values, seed=seed)
    return means | {
        "documents_returned": round(float(np.mean([len(f) for f in returned.values()])), 2),
        "context_tokens": round(float(np.mean([_count_tokens(f) for f in returned.values()])), 1),
        **_model_costs(run),
        "latency_ms": percentiles(run.milliseconds),
        "indexing_s": round(run.indexing_s, 2),
    }


def _model_costs(run: MethodRun) -> dict[str, float]:
    """Compute the cost of chat models per question."""
    used, asked = run.usage, len(run.found)
    return {
        "llm_calls": round(used.calls / asked, 4),
        "llm_cached_calls": round(used.cached_calls / asked, 4),
        "llm_failures": round(used.failures / asked, 4),
        "llm_input_tokens": round(used.input_tokens / asked, 1),
        "llm_output_tokens": round(used.output_tokens / asked, 1),
        "cost_usd": round(used.cost_usd / asked, 8),
    }


def _count_tokens(found: Sequence[RetrievedChunk]) -> float:
    return sum(len(f.text) for f in found) / Settings().rank.characters_per_token


def compare_methods(
    scored: Mapping[str, PerQuery], metrics: Sequence[str], *, seed: int
) -> list[dict[str, Any]]:
    """Compare each method of this project with each other one by query; each pair once.

    Without one of this project each ``module:attribute`` is compared with the first baseline.
    """
    own_names = [name for name in OWN_METHODS if name in scored]
    pairs = [
        (own, other)
        for place, own in enumerate(own_names)
        for other in scored
        if other not in own_names[: place + 1]
    ]
    if not own_names:
        baselines = [name for name in scored if ":" not in name]
        pairs = [(name, first) for first in baselines[:1] for name in scored if ":" in name]
    return [
        {"a": a, "b": b, "metric": metric}
        | compare_paired(scored[a][metric], scored[b][metric], seed=seed)
        for a, b in pairs
        for metric in metrics
    ]
