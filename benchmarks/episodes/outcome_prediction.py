"""Predict how an episode ends from its first half, and the next action from the region.

The MDP learns from other attempts at the same tasks through ``CrabPath.learn_episode``; nothing of
the predicted attempt reaches the memory, its regions or its counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.episodes.tau_bench import Trajectory
from crabpath_lab.scratch import open_scratch
from crabpath_retrievers import CrabPath, RegionMDP
from crabpath_retrievers.core.calls import bar


@dataclass(frozen=True, slots=True)
class EpisodePrediction:
    """Predictions for one attempt, made before its end was known.

    Attributes:
        task: Its task.
        reward: How it ended, 0 or 1.
        mdp: P(success) by the region MDP, given the first half and the task.
        without_task: The same without knowing the task.
        per_task: Mean reward of the other attempts at the task.
        base_rate: Mean reward of all other attempts.
        actions: Per step of the whole attempt: its region, the action taken, and three predictions:
            the best action there, the most frequent one there, the most frequent one of all.
    """

    task: str
    reward: float
    mdp: float
    without_task: float
    per_task: float
    base_rate: float
    actions: Sequence[tuple[str, str, str, str, str]]


def predict_episodes(
    train: Sequence[Trajectory], test: Sequence[Trajectory], embeddings: Embeddings
) -> list[EpisodePrediction]:
    """Learn from some attempts, and predict others.

    Args:
        train: Attempts that are known to their end; what they saw makes the regions.
        test: Attempts to predict.
        embeddings: The embedder.
    """
    with open_scratch(embeddings=embeddings) as memory:
        _learn(memory, train)
        mdp = memory.regions.mdp("states")
        most = Counter(action for one in train for action in one.actions).most_common(1)[0][0]
        rewards: dict[str, list[float]] = {}
        for one in train:
            rewards.setdefault(one.task, []).append(one.reward)
        everywhere = float(np.mean([one.reward for one in train]))
        predictions = []
        for one in test:
            regions = [mdp.assign(text) for text in one.states]
            begun = list(zip(regions, one.actions, strict=True))[: one.first_half]
            known = [step for step in begun if step[1] in mdp.actions]
            predictions.append(
                EpisodePrediction(
                    one.task,
                    one.reward,
                    mdp.episode_success(known, one.task),
                    mdp.episode_success(known),
                    float(np.mean(rewards.get(one.task, [everywhere]))),
                    everywhere,
                    list(_predict_actions(mdp, regions, one.actions, most)),
                )
            )
    return predictions


def _learn(memory: CrabPath, train: Sequence[Trajectory]) -> None:
    with bar(len(train), description="episodes") as advance:
        for one in train:
            memory.regions.learn_episode(
                texts=one.states,
                actions=one.actions,
                reward=2.0 * one.reward - 1.0,
                task_type=one.task,
            )
            advance(1)


def _predict_actions(
    mdp: RegionMDP, regions: Sequence[str], actions: Sequence[str], most: str
) -> Iterator[tuple[str, str, str, str, str]]:
    for region, action in zip(regions, actions, strict=True):
        scores = mdp.best_action(region)
        usual = max(scores, key=lambda score: score.share).action
        best = max(scores, key=lambda score: score.success * score.share).action
        yield region, action, best, usual, most


def cross_validate_trials(
    runs: Sequence[Trajectory], embeddings: Embeddings
) -> Iterator[tuple[int, list[EpisodePrediction]]]:
    """Predict each trial from all others, in the order of the trials."""
    for trial in sorted({run.trial for run in runs}):
        train = [run for run in runs if run.trial != trial]
        test = [run for run in runs if run.trial == trial]
        yield trial, predict_episodes(train, test, embeddings)


def to_record(one: EpisodePrediction) -> dict[str, Any]:
    """Without the steps, for a file of figures."""
    return {name: getattr(one, name) for name in one.__slots__ if name != "actions"}
