"""``crabpath eval-episodes``: what the region MDP foretells of agents' episodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.episodes.metrics import action_figures, outcome_figures
from benchmarks.episodes.outcome_prediction import Foretold, as_record, held_out
from benchmarks.episodes.tau_bench import trajectories
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.embedding import embedder
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
    runs = trajectories(path)
    if len({run.trial for run in runs}) <= 1:
        msg = f"{path} has one trial: foretelling it needs others to learn from"
        raise InvalidInputError(msg)
    told = dict(held_out(runs, embedder(MODEL, cache)))
    last = max(told)
    together = [one for trial in told.values() for one in trial]
    return {
        "file": path.resolve().name,
        "embedding": MODEL,
        "parts": {
            f"trial {last}": _part(told[last], seed),
            "every trial from the others": _part(together, seed),
        },
        "foretold": {trial: [as_record(one) for one in part] for trial, part in told.items()},
    }


def _part(told: Sequence[Foretold], seed: int) -> dict[str, Any]:
    return {
        "outcome": outcome_figures(told, seed=seed),
        "action": action_figures(told, seed=seed),
    }
