"""Does learning ever hurt? One pass per kind of feedback, share of noise, and order."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.learning.paired_learners import DOCUMENTS_READ, PairedLearners
from benchmarks.learning.plan import LearningPlan
from crabpath_lab.scoring.measures import PerQuery
from crabpath_lab.statistics import compare_paired
from crabpath_lab.streams.simulated_feedback import (
    FeedbackKind,
    FeedbackSimulator,
)


def run_grid(pair: PairedLearners, plan: LearningPlan) -> Iterator[dict[str, Any]]:
    """Learned beside frozen, one cell per kind of feedback and share of noise.

    Yields:
        ``dataset``, ``feedback``, ``noise``; ``metrics``: by measure, over all orders, where each
        question counts once with its mean; ``orders``: the same for each order, by ``seed``.
    """
    frozen = pair.score_pass_in_order(pair.run_frozen()[0])
    seeds = range(plan.orders_of("grid"))
    for kind, noise in product(usable_kinds(pair, plan), plan.noise_of("grid")):
        orders = [_run_order(pair, kind, noise, seed) for seed in seeds]
        yield {
            "dataset": pair.name,
            "feedback": kind,
            "noise": noise,
            "metrics": _compare_scores(pair, _mean_over_orders(orders), frozen),
            "orders": [
                {"seed": seed, "metrics": _compare_scores(pair, scores, frozen)}
                for seed, scores in enumerate(orders)
            ],
        }


def usable_kinds(pair: PairedLearners, plan: LearningPlan) -> list[FeedbackKind]:
    """Kinds of feedback that the data can give: without answers, ``answer`` is ``outcome``."""
    return [kind for kind in plan.feedback if kind != "answer" or pair.dataset.answers]


def summarize_by_kind(found: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Over all cells of a kind of feedback, by kind and measure.

    Returns:
        ``cells``: their number; ``difference``: its mean; ``least``: the lowest; ``below``: in
        how many learning is significantly worse than no learning.
    """
    summary: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(cell["feedback"] for cell in found):
        own = [cell["metrics"] for cell in found if cell["feedback"] == kind]
        names = dict.fromkeys(name for metrics in own for name in metrics)
        summary[kind] = {name: _summarize([m[name] for m in own if name in m]) for name in names}
    return summary


def _summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    differences = [row["difference"] for row in rows]
    return {
        "cells": len(rows),
        "difference": round(float(np.mean(differences)), 4),
        "least": min(differences),
        "below": sum(row["below"] for row in rows),
    }


def _run_order(pair: PairedLearners, kind: FeedbackKind, noise: float, seed: int) -> PerQuery:
    with pair.namespace(f"{kind}, noise {noise}, order {seed}") as namespace:
        done = pair.run_learning(
            namespace, FeedbackSimulator(kind, noise, DOCUMENTS_READ), pair.schedule(seed=seed)
        )
    return pair.score_pass_in_order(done[0])


def _mean_over_orders(orders: Sequence[PerQuery]) -> PerQuery:
    """The mean of each question over the orders: n stays the number of questions."""
    return {
        name: np.mean([scores[name] for scores in orders], axis=0).tolist() for name in orders[0]
    }


def _compare_scores(
    pair: PairedLearners, own: PerQuery, frozen: PerQuery
) -> dict[str, dict[str, Any]]:
    return {name: compare_metric(own[name], frozen[name]) for name in pair.metrics}


def compare_metric(own: Sequence[float], frozen: Sequence[float]) -> dict[str, Any]:
    """Compare a metric of one stream with that of the frozen memory, question by question."""
    found = compare_paired(own, frozen)
    ci95 = found["ci95"]
    return {
        "learned": round(float(np.mean(own)), 4),
        "frozen": round(float(np.mean(frozen)), 4),
        **found,
        "below": ci95 is not None and ci95[1] < 0,
    }
