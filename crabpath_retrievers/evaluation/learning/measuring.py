"""``crabpath eval-learning``: data sets, parts, figures."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.embeddings import Embeddings

from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.embedding import embedder
from crabpath_retrievers.evaluation.learning.ablation import EPOCHS, METRIC, ablated
from crabpath_retrievers.evaluation.learning.compression import DEPTH, compressed
from crabpath_retrievers.evaluation.learning.endurance import WINDOW, endured, slopes
from crabpath_retrievers.evaluation.learning.grid import by_kind, cells, usable
from crabpath_retrievers.evaluation.learning.plan import KS, LearningPlan
from crabpath_retrievers.evaluation.learning.routing_calls import METRIC as FULL
from crabpath_retrievers.evaluation.learning.routing_calls import MODEL as ROUTER
from crabpath_retrievers.evaluation.learning.routing_calls import routing_rows
from crabpath_retrievers.evaluation.learning.subject import Subject, opened
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
    if "ablation" in plan.parts:
        for row in ablated(subject):
            figures["ablation"]["rows"].append(row)
            added()
    if "routing" in plan.parts:
        for row in routing_rows(subject):
            figures["routing"]["rows"].append(row)
            added()
    if "compression" in plan.parts and subject.name == plan.longest:
        for row in compressed(subject):
            figures["compression"]["rows"].append(row)
            added()


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
    }
    names = ("limit", "orders", "turns")
    asked: dict[str, Any] = {name: getattr(plan, name) for name in names}
    lists = {name: list(getattr(plan, name)) for name in ("parts", "feedback", "noise")}
    return {
        "embedding": MODEL,
        "plan": asked | lists,
        "datasets": {name: _described(plan, name, dataset) for name, dataset in datasets.items()},
        **{part: parts[part] for part in parts if part in plan.parts},
        "wall_s": 0.0,
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
