"""Accuracy of the predictions, with intervals over tasks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import binomtest, bootstrap
from sklearn.metrics import brier_score_loss, roc_auc_score

from benchmarks.episodes.outcome_prediction import EpisodePrediction

PREDICTORS = ("mdp", "without_task", "per_task")
_RESAMPLES = 2000
_BEST, _USUAL, _MOST = 2, 3, 4  # positions in an entry of EpisodePrediction.actions


def measure_outcomes(predictions: Sequence[EpisodePrediction], *, seed: int = 0) -> dict[str, Any]:
    """Area under the ROC curve of each predictor, with 95 % intervals over tasks.

    Always saying the base rate has .5. ``difference`` is that of the MDP to the mean per task.
    """
    found: dict[str, Any] = {"episodes": len(predictions)}
    for way in PREDICTORS:
        found[way] = {
            "auc": round(_measure_auc(predictions, way), 4),
            "ci95": _bootstrap_over_tasks(predictions, partial(_measure_auc, way=way), seed),
            "brier": _measure_brier(predictions, way),
        }
    found["base_rate"] = {"auc": 0.5, "brier": _measure_brier(predictions, "base_rate")}
    found["difference"] = {
        "auc": round(_measure_auc(predictions, "mdp") - _measure_auc(predictions, "per_task"), 4),
        "ci95": _bootstrap_over_tasks(
            predictions,
            lambda part: _measure_auc(part, "mdp") - _measure_auc(part, "per_task"),
            seed,
        ),
    }
    return found


def measure_actions(predictions: Sequence[EpisodePrediction], *, seed: int = 0) -> dict[str, Any]:
    """Accuracy of the next action by three ways, with 95 % intervals over tasks.

    ``regions`` counts those where the best action is right more, or less, often than the most
    frequent action of all, with the p of a sign test.
    """
    ways = {"successful_in_region": _BEST, "usual_in_region": _USUAL, "most_frequent": _MOST}
    found: dict[str, Any] = {"steps": sum(len(one.actions) for one in predictions)}
    for name, place in ways.items():
        found[name] = {
            "accuracy": round(_measure_accuracy(predictions, place), 4),
            "ci95": _bootstrap_over_tasks(
                predictions, partial(_measure_accuracy, place=place), seed
            ),
        }
    found["difference"] = {
        "accuracy": round(
            _measure_accuracy(predictions, _BEST) - _measure_accuracy(predictions, _MOST), 4
        ),
        "ci95": _bootstrap_over_tasks(
            predictions,
            lambda part: _measure_accuracy(part, _BEST) - _measure_accuracy(part, _MOST),
            seed,
        ),
    }
    found["regions"] = _compare_by_region(predictions)
    return found


def _compare_by_region(predictions: Sequence[EpisodePrediction]) -> dict[str, Any]:
    right: dict[str, int] = {}
    for one in predictions:
        for region, done, best, _, most in one.actions:
            right[region] = right.get(region, 0) + (best == done) - (most == done)
    better = sum(value > 0 for value in right.values())
    worse = sum(value < 0 for value in right.values())
    p = float(binomtest(better, better + worse).pvalue) if better + worse else None
    return {"all": len(right), "better": better, "worse": worse, "p": p}


def _measure_accuracy(predictions: Sequence[EpisodePrediction], place: int) -> float:
    steps = [step for one in predictions for step in one.actions]
    return float(np.mean([step[1] == step[place] for step in steps]))


def _measure_auc(predictions: Sequence[EpisodePrediction], way: str) -> float:
    rewards = [one.reward for one in predictions]
    return float(roc_auc_score(rewards, [getattr(one, way) for one in predictions]))


def _measure_brier(predictions: Sequence[EpisodePrediction], way: str) -> float:
    rewards = [one.reward for one in predictions]
    return round(float(brier_score_loss(rewards, [getattr(one, way) for one in predictions])), 4)


def _bootstrap_over_tasks(
    predictions: Sequence[EpisodePrediction],
    statistic: Callable[[Sequence[EpisodePrediction]], float],
    seed: int,
) -> list[float]:
    """95 % percentile bootstrap interval over tasks, whose attempts are not independent."""
    of_task: dict[str, list[EpisodePrediction]] = {}
    for one in predictions:
        of_task.setdefault(one.task, []).append(one)
    groups: Mapping[int, list[EpisodePrediction]] = dict(enumerate(of_task.values()))

    def resample_statistic(places: Any) -> float:
        part = [one for place in places for one in groups[int(place)]]
        rewards = {one.reward for one in part}
        return statistic(part) if len(rewards) > 1 else float("nan")

    found = bootstrap(
        (np.arange(len(groups)),),
        resample_statistic,
        vectorized=False,
        method="percentile",
        n_resamples=_RESAMPLES,
        rng=seed,
    ).confidence_interval
    return [round(float(end), 4) for end in found]
