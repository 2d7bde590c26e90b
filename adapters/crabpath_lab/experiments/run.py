"""Run experiments, each with every seed, and summarize the results."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.experiment import Experiment, SeedResult
from crabpath_lab.experiments.judging import mean_interval
from crabpath_retrievers.core.calls import bar

_DIGITS = 4  # digits after the point


def run_experiment(experiment: Experiment, embeddings: Embeddings, seeds: int) -> dict[str, Any]:
    """Run one experiment with seeds from 0 on.

    Returns:
        A JSON-safe record: ``name``, ``title``, ``scene``, ``paper``, ``seeds``,
        ``figures``: by name ``mean``, ``ci95`` over seeds, ``least``, ``most``, ``by_seed``;
        ``curves``: by name ``mean``, ``least`` and ``most`` by turn; ``across``, ``up``;
        ``verdict``, ``reason``, ``criteria``: each ``name``, ``mean``, ``interval`` and ``answer``;
        ``wall_s``.
    """
    begun, trials = time.perf_counter(), list[SeedResult]()
    with bar(seeds, description=experiment.name) as done:
        for seed in range(seeds):
            trials.append(experiment.run(embeddings, seed))
            done(1)
    by_seed = _group_by_name(trial.figures for trial in trials)
    verdict = experiment.verdict(by_seed)
    described = ("name", "title", "scene", "paper", "across", "up")
    return {
        **{name: getattr(experiment, name) for name in described},
        "seeds": seeds,
        "figures": {name: _summarize(values) for name, values in by_seed.items()},
        "curves": {
            name: _curve_band(values)
            for name, values in _group_by_name(t.curves for t in trials).items()
        },
        "verdict": verdict.word,
        "reason": verdict.reason,
        "criteria": [one._asdict() for one in verdict.criteria],
        "wall_s": round(time.perf_counter() - begun, 1),
    }


def _group_by_name(of_trials: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for one in of_trials:
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return found


def _summarize(values: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": round(float(np.mean(values)), _DIGITS),
        "ci95": mean_interval(values),
        "least": round(float(np.min(values)), _DIGITS),
        "most": round(float(np.max(values)), _DIGITS),
        "by_seed": [round(float(value), _DIGITS) for value in values],
    }


def _curve_band(curves: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    at = np.asarray(curves, dtype=np.float64)
    ways = {"mean": at.mean(axis=0), "least": at.min(axis=0), "most": at.max(axis=0)}
    return {name: [round(float(v), _DIGITS) for v in values] for name, values in ways.items()}
