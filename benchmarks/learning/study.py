"""``crabpath eval-learning``: data sets, parts, figures."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from langchain_core.embeddings import Embeddings

from benchmarks.learning.ablation import EPOCHS, METRIC, ablated
from benchmarks.learning.answer_length import DEPTH, compressed
from benchmarks.learning.contamination import METRIC as SPOILED
from benchmarks.learning.contamination import contaminated, ordered
from benchmarks.learning.endurance import WINDOW, endured, slopes
from benchmarks.learning.feedback_grid import by_kind, cells, usable
from benchmarks.learning.paired_learners import Subject, opened
from benchmarks.learning.plan import (
    KS,
    NOISE,
    ORDERS,
    REGION_VARIANTS,
    LearningPlan,
)
from benchmarks.learning.region_ablation import TOLD, region_rows
from benchmarks.learning.routing_calls import METRIC as FULL
from benchmarks.learning.routing_calls import MODEL as ROUTER
from benchmarks.learning.routing_calls import routing_rows
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.embedding import embedder
from crabpath_retrievers.evaluation.plan import labelled
from crabpath_retrievers.seeds.embedder import MODEL

Keep = Callable[[Mapping[str, Any]], None]
"""Is handed the figures so far after every cell, so that an interrupted run loses one at most."""


def measure_learning(plan: LearningPlan, keep: Keep) -> dict[str, Any]:
    """Measure every part that is asked for; each data set is indexed once for all but endurance.

    Args:
        plan: What to measure.
        keep: Is handed all figures again whenever some were added.

    Returns:
        A JSON-safe record: ``embedding``, ``plan``, ``datasets``, one entry per part, ``wall_s``.

    Raises:
        InvalidInputError: The data cannot be used.
    """
    begun = time.perf_counter()
    datasets = {name: labelled(name, path, plan.limit) for name, path in plan.paths.items()}
    embeddings = embedder(cache=plan.cache)
    figures = _empty(plan, datasets)

    def added() -> None:
        figures["wall_s"] = round(time.perf_counter() - begun, 1)
        keep(figures)

    if set(plan.parts) != {"endurance"}:
        for name, dataset in datasets.items():
            passes = EPOCHS if "ablation" in plan.parts else 1
            with opened(name, dataset, embeddings, KS[name], passes=passes) as subject:
                _measure(subject, plan, figures, added)
    if "endurance" in plan.parts:
        _endure(plan, datasets[plan.longest], embeddings, figures["endurance"], added)
    return figures


def _measure(
    subject: Subject, plan: LearningPlan, figures: dict[str, Any], added: Callable[[], None]
) -> None:
    """The parts that share one memory."""
    if "grid" in plan.parts:
        grid = figures["grid"]
        for kind in set(plan.feedback) - set(usable(subject, plan)):
            grid["left_out"].append({"dataset": subject.name, "feedback": kind})
        for cell in cells(subject, plan):
            grid["cells"].append(cell)
            grid["kinds"] = by_kind(grid["cells"])
            added()
    for part, rows in _rows(subject, plan).items():
        for row in rows:
            figures[part]["rows"].append(row)
            if part == "contamination":
                figures[part]["ordered"] = ordered(figures[part]["rows"])
            added()


def _rows(subject: Subject, plan: LearningPlan) -> dict[str, Iterator[dict[str, Any]]]:
    """What each part that consists of rows will yield, in the order in which they are measured."""
    parts = {
        "ablation": ablated(subject),
        "routing": routing_rows(subject),
        "contamination": chain.from_iterable(
            contaminated(subject, noise, plan.orders_of("contamination"))
            for noise in plan.noise_of("contamination")
        ),
        "regions": region_rows(
            subject,
            plan.orders_of("regions"),
            [kind for kind in TOLD if kind in plan.feedback],
            plan.variants or REGION_VARIANTS,
        ),
    }
    if subject.name == plan.longest:
        parts["compression"] = compressed(subject)
    return {part: rows for part, rows in parts.items() if part in plan.parts}


def _endure(
    plan: LearningPlan,
    dataset: Dataset,
    embeddings: Embeddings,
    found: dict[str, Any],
    added: Callable[[], None],
) -> None:
    for window in endured(dataset, embeddings, KS[plan.longest][-1], plan.turns):
        found["windows"].append(window)
        found["slopes"] = slopes(found["windows"])
        added()


def _empty(plan: LearningPlan, datasets: Mapping[str, Dataset]) -> dict[str, Any]:
    """The record before anything is measured, with the parts that will be."""
    parts: dict[str, dict[str, Any]] = {
        "grid": {"cells": [], "kinds": {}, "left_out": []},
        "ablation": {"metric": METRIC, "rows": []},
        "compression": {"dataset": plan.longest, "k": DEPTH, "rows": []},
        "routing": {"metric": FULL, "model": ROUTER, "rows": []},
        "endurance": {"dataset": plan.longest, "window": WINDOW, "windows": [], "slopes": {}},
        "contamination": {"metric": SPOILED, "rows": [], "ordered": []},
        "regions": {"rows": []},
    }
    return {
        "embedding": MODEL,
        "plan": _asked(plan),
        "datasets": {name: _described(plan, name, dataset) for name, dataset in datasets.items()},
        **{part: parts[part] for part in parts if part in plan.parts},
        "wall_s": 0.0,
    }


def _asked(plan: LearningPlan) -> dict[str, Any]:
    return {
        "limit": plan.limit,
        "turns": plan.turns,
        "parts": list(plan.parts),
        "feedback": list(plan.feedback),
        "orders": {part: plan.orders_of(part) for part in ORDERS if part in plan.parts},
        "noise": {part: list(plan.noise_of(part)) for part in NOISE if part in plan.parts},
    }


def _described(plan: LearningPlan, name: str, dataset: Dataset) -> dict[str, Any]:
    return {
        "file": plan.paths[name].resolve().name,
        "questions": len(dataset.queries),
        "documents": len(dataset.documents),
        "k": KS[name][-1],
        "distinct": dataset.split,
        "answers": len(dataset.answers),
    }
