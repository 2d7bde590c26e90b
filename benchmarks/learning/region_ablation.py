"""What the region MDP gives: on against off, and without each thing that rests on it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.learning.paired_learners import DOCUMENTS_READ, PairedLearners
from crabpath_lab.learning_rules import use_rules
from crabpath_lab.scoring.measures import PerQuery
from crabpath_lab.statistics import compare_paired
from crabpath_lab.streams.simulated_feedback import (
    FeedbackKind,
    FeedbackSimulator,
)
from crabpath_retrievers.config import LearningSettings, Settings

REGIONS_ON = "regions on"
EPOCHS = 2
_DEFAULT = LearningSettings()

REGION_ABLATIONS: Mapping[str, LearningSettings] = MappingProxyType(
    {
        REGIONS_ON: _DEFAULT,
        "regions off": _DEFAULT.replace(regions=False),
        "reward_decay none": _DEFAULT,
        "reward_decay blind": _DEFAULT,
    }
)
"""Settings by variant, with the rules of that name; the default comes first."""

FEEDBACK_USED: tuple[FeedbackKind, ...] = ("used", "outcome")

Scores = Mapping[str, Mapping[str, float]]
"""Mean score over all orders, by measure and question."""


def run_region_ablation(
    pair: PairedLearners,
    orders: int,
    kinds: Sequence[FeedbackKind] = FEEDBACK_USED,
    variants: Sequence[str] = tuple(REGION_ABLATIONS),
) -> Iterator[dict[str, Any]]:
    """Every variant on the same streams of two passes.

    Args:
        pair: The data set.
        orders: Orders of the questions, seeds 0, 1, …
        kinds: Kinds of feedback.
        variants: Variants to measure, beside ``REGIONS_ON``, with which all are compared.

    Yields:
        ``dataset``, ``feedback``, ``orders``, ``variant``, and ``parts``: ``first pass``,
        ``second half`` of it, ``second pass``, each with, by ``full@k``, the ``mean`` and the
        paired ``difference`` to ``REGIONS_ON`` with ``ci95`` and ``p``. Each question counts
        once, with its mean over the orders that have it in that part.
    """
    for kind in kinds:
        beside: dict[str, Scores] = {}
        for variant in dict.fromkeys((REGIONS_ON, *variants)):
            own = _scores_by_part(pair, kind, variant, orders)
            beside = beside or own
            yield {
                "dataset": pair.name,
                "feedback": kind,
                "orders": orders,
                "variant": variant,
                "parts": {part: _compare_scores(own[part], beside[part]) for part in own},
            }


def _scores_by_part(
    pair: PairedLearners, kind: FeedbackKind, variant: str, orders: int
) -> dict[str, Scores]:
    seeds = [_run_order(pair, kind, variant, seed) for seed in range(orders)]
    return {part: _mean_over_orders([one[part] for one in seeds]) for part in seeds[0]}


def _run_order(
    pair: PairedLearners, kind: FeedbackKind, variant: str, seed: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by part, measure and question."""
    memory = pair.with_settings(Settings().replace(learning=REGION_ABLATIONS[variant]))
    schedule = pair.schedule(EPOCHS, seed)
    name = f"{variant}, {kind}, order {seed}"
    with pair.namespace(name) as namespace, use_rules(variant):
        done = pair.run_learning(
            namespace, FeedbackSimulator(kind, 0.0, DOCUMENTS_READ), schedule, memory
        )
    first, second = (pair.score_pass(one) for one in done)
    asked = schedule.order_queries(list(pair.dataset.queries))
    half = len(asked) // 2
    return {
        "first pass": _scores_by_question(pair, first, asked, 0),
        "second half": _scores_by_question(pair, first, asked, half),
        "second pass": _scores_by_question(pair, second, asked, 0),
    }


def _scores_by_question(
    pair: PairedLearners, scores: PerQuery, asked: Sequence[str], begin: int
) -> dict[str, dict[str, float]]:
    names = [f"full@{k}" for k in pair.ks]
    return {n: dict(zip(asked[begin:], scores[n][begin:], strict=True)) for n in names}


def _mean_over_orders(orders: Sequence[Scores]) -> Scores:
    """The mean of each question over the orders that have it: n is at most their number."""
    pooled: dict[str, dict[str, float]] = {}
    for name in orders[0]:
        found = defaultdict[str, list[float]](list)
        for one in orders:
            for query, score in one[name].items():
                found[query].append(score)
        pooled[name] = {query: float(np.mean(found[query])) for query in sorted(found)}
    return pooled


def _compare_scores(own: Scores, beside: Scores) -> dict[str, dict[str, Any]]:
    return {
        name: {"mean": round(float(np.mean(list(own[name].values()))), 4)}
        | compare_paired(list(own[name].values()), list(beside[name].values()))
        for name in own
    }
