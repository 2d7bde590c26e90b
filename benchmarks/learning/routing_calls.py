"""How often a chat model is asked on a stream that repeats, and whether learning converges.

The model is simulated ([CrabPath] §6): it follows what shares words with the question, and
tosses a coin for three candidates in ten.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.learning.paired_learners import DOCUMENTS_READ, DROPPED, PairedLearners
from crabpath_lab.datasets import Dataset
from crabpath_lab.simulated_model import load_chat_model
from crabpath_lab.streams.learners import CrabPathLearner, RankedDocument
from crabpath_lab.streams.prequential import StreamPass, StreamSchedule
from crabpath_lab.streams.simulated_feedback import (
    FeedbackKind,
    FeedbackSimulator,
)
from crabpath_retrievers import ChatModelRouter
from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.core.records import ModelUsage, Vector

QUESTIONS = 50
ROUNDS = 8
SETTLING_TURNS = 200  # turns after which routes should be reflexes
WINDOW = 50
MODEL = "simulated:0.3"
METRIC = f"full@{DOCUMENTS_READ}"

_NO_EPISODES = LearningSettings(episodes=False)
ROUTING_VARIANTS: tuple[tuple[str, FeedbackKind, str | None, LearningSettings], ...] = (
    ("policy alone", "used", None, LearningSettings()),
    ("chat model", "used", MODEL, LearningSettings()),
    ("chat model", "outcome", MODEL, LearningSettings()),
    ("chat model, no episodes", "used", MODEL, _NO_EPISODES),
)
"""Router, kind of feedback, chat model, and learning settings."""


@dataclass(slots=True)
class MeteredLearner(CrabPathLearner):
    """Learns, and keeps what each turn cost."""

    usage: list[ModelUsage] = field(default_factory=list)

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """The k best documents, best first."""
        found = CrabPathLearner.rank(self, query, vector, k)
        self.usage.append(self.turn.usage if self.turn else ModelUsage())
        return found


def run_routing(pair: PairedLearners) -> Iterator[dict[str, Any]]:
    """A stream of ``QUESTIONS``, each asked ``ROUNDS`` times with 20 % of their words left out.

    Yields:
        ``dataset``, ``router``, ``feedback``, ``turns``; ``windows`` of ``WINDOW`` turns, each with
        ``calls`` and ``tokens`` per turn and ``METRIC``; ``calls_later``: calls per turn after
        ``SETTLING_TURNS`` turns; ``tokens_per_call``; ``failures``.
    """
    dataset = _sample_questions(pair.dataset)
    for router, kind, model, learning in ROUTING_VARIANTS:
        asking = None if model is None else ChatModelRouter(load_chat_model(model))
        memory = pair.with_settings(Settings().replace(learning=learning), asking)
        with pair.namespace(f"{router}, {kind}") as namespace:
            learner = MeteredLearner(memory, dataset.split, namespace)
            schedule, simulator = (
                StreamSchedule(ROUNDS, 0, DROPPED),
                FeedbackSimulator(kind, 0.0, DOCUMENTS_READ),
            )
            passes = replace(pair, dataset=dataset).run_stream(
                namespace, learner, simulator, schedule
            )
            yield {
                "dataset": pair.name,
                "router": router,
                "feedback": kind,
                **_summarize(learner.usage, _full_evidence(pair, passes)),
            }


def _sample_questions(dataset: Dataset) -> Dataset:
    """The same corpus with few of the questions, drawn with seed 0."""
    names = list(dataset.queries)
    drawn = np.random.default_rng(0).permutation(len(names))[:QUESTIONS]
    return replace(dataset, queries={names[i]: dataset.queries[names[i]] for i in drawn})


def _full_evidence(pair: PairedLearners, passes: list[StreamPass]) -> list[float]:
    return [score for done in passes for score in pair.score_pass(done)[METRIC]]


def _summarize(usage: list[ModelUsage], full: list[float]) -> dict[str, Any]:
    calls = [one.calls for one in usage]
    tokens = [one.tokens for one in usage]
    windows = [slice(start, start + WINDOW) for start in range(0, len(usage), WINDOW)]
    return {
        "turns": len(usage),
        "calls_later": _mean(calls[SETTLING_TURNS:]),
        "tokens_per_call": round(sum(tokens) / max(1, sum(calls)), 1),
        "failures": sum(one.failures for one in usage),
        "windows": [
            {
                "turns": min(part.stop, len(usage)),
                "calls": _mean(calls[part]),
                "tokens": _mean(tokens[part]),
                METRIC: _mean(full[part]),
            }
            for part in windows
        ],
    }


def _mean(values: list[Any]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None
