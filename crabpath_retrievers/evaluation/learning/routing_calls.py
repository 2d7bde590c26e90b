"""How often a chat model is asked on a stream that repeats, and whether learning converges.

The model is simulated (document 000 §6.X): it follows what shares words with the question, and
tosses a coin for three candidates in ten.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.learning.subject import DROPPED, READ, Subject
from crabpath_retrievers.evaluation.routing.models import model_of
from crabpath_retrievers.evaluation.streams.learners import Learned, Ranked
from crabpath_retrievers.evaluation.streams.prequential import Course, Pass
from crabpath_retrievers.evaluation.streams.signals import Judge, Kind
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.routing.chat_model import ChatModelRouter
from crabpath_retrievers.usage import Usage

QUESTIONS = 50
ROUNDS = 8
SETTLED = 200  # turns after which routes should be reflexes
WINDOW = 50
MODEL = "simulated:0.3"
METRIC = f"full@{READ}"

_NO_EPISODES = LearningSettings(episodes=False)
VARIANTS: tuple[tuple[str, Kind, str | None, LearningSettings], ...] = (
    ("policy alone", "used", None, LearningSettings()),
    ("chat model", "used", MODEL, LearningSettings()),
    ("chat model", "outcome", MODEL, LearningSettings()),
    ("chat model, no episodes", "used", MODEL, _NO_EPISODES),
)
"""Who routes, what is told, the model, and what learns."""


@dataclass(slots=True)
class Metered(Learned):
    """Learns, and keeps what each turn cost."""

    usage: list[Usage] = field(default_factory=list)

    def rank(self, query: str, vector: Vector, k: int) -> list[Ranked]:
        """The k best documents, best first."""
        found = Learned.rank(self, query, vector, k)
        self.usage.append(self.turn.usage if self.turn else Usage())
        return found


def routing_rows(subject: Subject) -> Iterator[dict[str, Any]]:
    """A stream of ``QUESTIONS`` that come ``ROUNDS`` times, a fifth of their words left out.

    Yields:
        ``dataset``, ``router``, ``feedback``, ``turns``; ``windows`` of ``WINDOW`` turns, each with
        ``calls`` and ``tokens`` per turn and ``METRIC``; ``calls_later``: calls per turn after
        ``SETTLED`` turns; ``tokens_per_call``; ``failures``.
    """
    dataset = _few(subject.dataset)
    for router, kind, model, learning in VARIANTS:
        asking = None if model is None else ChatModelRouter(model_of(model))
        memory = subject.with_settings(Settings().replace(learning=learning), asking)
        with subject.namespace(f"{router}, {kind}") as namespace:
            learner = Metered(memory, dataset.split, namespace)
            course, judge = Course(ROUNDS, 0, DROPPED), Judge(kind, 0.0, READ)
            passes = replace(subject, dataset=dataset).follow(namespace, learner, judge, course)
            yield {
                "dataset": subject.name,
                "router": router,
                "feedback": kind,
                **_figures(learner.usage, _full(subject, passes)),
            }


def _few(dataset: Dataset) -> Dataset:
    """The same corpus with few of the questions, drawn with seed 0."""
    names = list(dataset.queries)
    drawn = np.random.default_rng(0).permutation(len(names))[:QUESTIONS]
    return replace(dataset, queries={names[i]: dataset.queries[names[i]] for i in drawn})


def _full(subject: Subject, passes: list[Pass]) -> list[float]:
    return [score for done in passes for score in subject.scores(done)[METRIC]]


def _figures(usage: list[Usage], full: list[float]) -> dict[str, Any]:
    calls = [one.calls for one in usage]
    tokens = [one.tokens for one in usage]
    windows = [slice(start, start + WINDOW) for start in range(0, len(usage), WINDOW)]
    return {
        "turns": len(usage),
        "calls_later": _mean(calls[SETTLED:]),
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
