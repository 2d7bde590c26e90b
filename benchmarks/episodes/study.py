"""``crabpath eval-episodes``: what the region MDP foretells of agents' episodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.episodes.metrics import measure_actions, measure_outcomes
from benchmarks.episodes.outcome_prediction import (
    EpisodePrediction,
    cross_validate_trials,
    to_record,
)
from benchmarks.episodes.tau_bench import load_trajectories
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.embedding import cached_embedder
from crabpath_retrievers.seeds.embedder import MODEL


def evaluate_episodes(path: Path, *, cache: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """Each trial of every task foretold from the others; the last one, and all together.

    Args:
        path: Trajectories of tau-bench.
        cache: Directory that keeps embeddings between runs.
        seed: Of the resampling.

    Raises:
        InvalidInputError: The file cannot be read, or has a single trial.
    """
    runs = load_trajectories(path)
    if len({run.trial for run in runs}) <= 1:
        msg = f"{path} has one trial: foretelling it needs others to learn from"
        raise InvalidInputError(msg)
    told = dict(cross_validate_trials(runs, cached_embedder(MODEL, cache)))
    last = max(told)
    together = [one for trial in told.values() for one in trial]
    return {
        "file": path.resolve().name,
        "embedding": MODEL,
        "parts": {
            f"trial {last}": _summarize(told[last], seed),
            "every trial from the others": _summarize(together, seed),
        },
        "foretold": {trial: [to_record(one) for one in part] for trial, part in told.items()},
    }


def _summarize(told: Sequence[EpisodePrediction], seed: int) -> dict[str, Any]:
    return {
        "outcome": measure_outcomes(told, seed=seed),
        "action": measure_actions(told, seed=seed),
    }
