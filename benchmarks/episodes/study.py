"""What the region MDP predicts of agents' episodes."""

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
from crabpath_lab.embedding import cached_embedder
from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL


def evaluate_episodes(path: Path, *, cache: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """Predict each trial of every task from the others; report the last trial, and all together.

    Args:
        path: Trajectories of tau-bench.
        cache: Directory that keeps embeddings between runs.
        seed: Seed of the bootstrap.

    Raises:
        InvalidInputError: The file cannot be read, or has a single trial.
    """
    runs = load_trajectories(path)
    if len({run.trial for run in runs}) <= 1:
        msg = f"{path} has one trial: predicting it needs others to learn from"
        raise InvalidInputError(msg)
    predictions = dict(cross_validate_trials(runs, cached_embedder(DEFAULT_MODEL, cache)))
    last = max(predictions)
    together = [one for trial in predictions.values() for one in trial]
    return {
        "file": path.resolve().name,
        "embedding": DEFAULT_MODEL,
        "parts": {
            f"trial {last}": _summarize(predictions[last], seed),
            "every trial from the others": _summarize(together, seed),
        },
        "foretold": {
            trial: [to_record(one) for one in part] for trial, part in predictions.items()
        },
    }


def _summarize(predictions: Sequence[EpisodePrediction], seed: int) -> dict[str, Any]:
    return {
        "outcome": measure_outcomes(predictions, seed=seed),
        "action": measure_actions(predictions, seed=seed),
    }
