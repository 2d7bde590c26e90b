"""The study of learning: every part on every data set, as one record."""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from langchain_core.embeddings import Embeddings

from benchmarks.learning.ablation import EPOCHS, METRIC, run_ablation
from benchmarks.learning.answer_length import DEPTH, measure_short_answers
from benchmarks.learning.contamination import METRIC as SPOILED
from benchmarks.learning.contamination import check_claimed_order, run_contamination
from benchmarks.learning.endurance import WINDOW, fit_slopes, run_endurance
from benchmarks.learning.feedback_grid import run_grid, summarize_by_kind, usable_kinds
from benchmarks.learning.paired_learners import PairedLearners, open_paired_learners
from benchmarks.learning.plan import CUTOFFS, NOISE, ORDERS, REGION_VARIANTS, LearningPlan
from benchmarks.learning.region_ablation import FEEDBACK_USED, run_region_ablation
from benchmarks.learning.routing_calls import METRIC as FULL
from benchmarks.learning.routing_calls import MODEL as ROUTER
from benchmarks.learning.routing_calls import run_routing
from crabpath_lab.datasets import Dataset
from crabpath_lab.embedding import cached_embedder
from crabpath_lab.plan import load_labelled
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

SaveFigures = Callable[[Mapping[str, Any]], None]
"""Is handed the figures so far after every cell, so that an interrupted run loses one at most."""


def measure_learning(plan: LearningPlan, keep: SaveFigures) -> dict[str, Any]:
    """Measure every part that is asked for; each data set is indexed once for all but endurance.

    Args:
        plan: What to measure.
        keep: Is handed all figures again whenever some were save_figures.

    Returns:
        A JSON-safe record: ``embedding``, ``plan``, ``datasets``, one entry per part, ``wall_s``.

    Raises:
        InvalidInputError: The data cannot be used.
    """
    begun = time.perf_counter()
    datasets = {name: load_labelled(name, path, plan.limit) for name, path in plan.paths.items()}
    embeddings = cached_embedder(cache=plan.cache)
    figures = _empty_record(plan, datasets)

    def save_figures() -> None:
        figures["wall_s"] = round(time.perf_counter() - begun, 1)
        keep(figures)

    if set(plan.parts) != {"endurance"}:
        for name, dataset in datasets.items():
            passes = EPOCHS if "ablation" in plan.parts else 1
            with open_paired_learners(
                name, dataset, embeddings, CUTOFFS[name], passes=passes
            ) as pair:
                _measure_parts(pair, plan, figures, save_figures)
    if "endurance" in plan.parts:
        _measure_endurance(
            plan, datasets[plan.longest], embeddings, figures["endurance"], save_figures
        )
    return figures


def _measure_parts(
    pair: PairedLearners,
    plan: LearningPlan,
    figures: dict[str, Any],
    save_figures: Callable[[], None],
) -> None:
    """The parts that share one memory."""
    if "grid" in plan.parts:
        grid = figures["grid"]
        for kind in set(plan.feedback) - set(usable_kinds(pair, plan)):
            grid["left_out"].append({"dataset": pair.name, "feedback": kind})
        for cell in run_grid(pair, plan):
            grid["cells"].append(cell)
            grid["kinds"] = summarize_by_kind(grid["cells"])
            save_figures()
    for part, rows in _rows_by_part(pair, plan).items():
        for row in rows:
            figures[part]["rows"].append(row)
            if part == "contamination":
                figures[part]["ordered"] = check_claimed_order(figures[part]["rows"])
            save_figures()


def _rows_by_part(pair: PairedLearners, plan: LearningPlan) -> dict[str, Iterator[dict[str, Any]]]:
    """What each part that consists of rows will yield, in the order in which they are measured."""
    parts = {
        "ablation": run_ablation(pair),
        "routing": run_routing(pair),
        "contamination": chain.from_iterable(
            run_contamination(pair, noise, plan.orders_of("contamination"))
            for noise in plan.noise_of("contamination")
        ),
        "regions": run_region_ablation(
            pair,
            plan.orders_of("regions"),
            [kind for kind in FEEDBACK_USED if kind in plan.feedback],
            plan.variants or REGION_VARIANTS,
        ),
    }
    if pair.name == plan.longest:
        parts["compression"] = measure_short_answers(pair)
    return {part: rows for part, rows in parts.items() if part in plan.parts}


def _measure_endurance(
    plan: LearningPlan,
    dataset: Dataset,
    embeddings: Embeddings,
    found: dict[str, Any],
    save_figures: Callable[[], None],
) -> None:
    for window in run_endurance(dataset, embeddings, CUTOFFS[plan.longest][-1], plan.turns):
        found["windows"].append(window)
        found["slopes"] = fit_slopes(found["windows"])
        save_figures()


def _empty_record(plan: LearningPlan, datasets: Mapping[str, Dataset]) -> dict[str, Any]:
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
        "embedding": DEFAULT_MODEL,
        "plan": _describe_plan(plan),
        "datasets": {
            name: _describe_dataset(plan, name, dataset) for name, dataset in datasets.items()
        },
        **{part: parts[part] for part in parts if part in plan.parts},
        "wall_s": 0.0,
    }


def _describe_plan(plan: LearningPlan) -> dict[str, Any]:
    return {
        "limit": plan.limit,
        "turns": plan.turns,
        "parts": list(plan.parts),
        "feedback": list(plan.feedback),
        "orders": {part: plan.orders_of(part) for part in ORDERS if part in plan.parts},
        "noise": {part: list(plan.noise_of(part)) for part in NOISE if part in plan.parts},
    }


def _describe_dataset(plan: LearningPlan, name: str, dataset: Dataset) -> dict[str, Any]:
    return {
        "file": plan.paths[name].resolve().name,
        "questions": len(dataset.queries),
        "documents": len(dataset.documents),
        "k": CUTOFFS[name][-1],
        "distinct": dataset.split,
        "answers": len(dataset.answers),
    }
