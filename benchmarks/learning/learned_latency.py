"""What learning costs a query: a taught namespace beside an untaught one of the same memory."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.learning.paired_learners import open_paired_learners
from benchmarks.speed.timing import bootstrap_median, time_call, time_pairs
from crabpath_lab.datasets import Dataset
from crabpath_lab.streams.simulated_feedback import FeedbackSimulator
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.crabpath import CrabPath

_SHOWN = 10  # documents per answer
_ROUNDS = 5


def measure_learned_latency(
    dataset: Dataset, embeddings: Embeddings, *, taught: int | None, asked: int
) -> dict[str, Any]:
    """Teach a namespace the documents used among ten of each question, and time queries.

    Queries are recorded and their vectors are given. Both namespaces answer each question in turns;
    of each the least of five counts.

    Args:
        dataset: Questions and documents.
        embeddings: The embedder.
        taught: Number of questions that are taught; None for all.
        asked: Number of questions that are timed, evenly from all.

    Returns:
        Medians in milliseconds of ``cold`` and ``learned``; their ratio (the median over questions)
        with its 95 % bootstrap interval; the same where each query follows a feedback on another
        one, so that nothing is remembered of the namespace; and medians of each stage in
        milliseconds (``seeds``, ``walk``, ``rank``), and of the nodes that the walk decided at
        (``steps``).
    """
    with open_paired_learners("latency", dataset, embeddings, (_SHOWN,)) as pair:
        pair.dataset = dataset.head(taught)
        signal = FeedbackSimulator("used", 0.0, _SHOWN)
        pair.run_learning("learned", signal, pair.schedule())
        texts = list(dataset.queries.values())
        texts = [texts[i] for i in np.linspace(0, len(texts) - 1, asked).astype(int)]
        questions = [(text, pair.memory.embedder.query(text)) for text in texts]
        ask = {name: _ask(pair.memory, name, split=dataset.split) for name in ("cold", "learned")}
        pairs = time_pairs(
            ask["learned"], ask["cold"], questions, before=pair.memory.store.flush, rounds=_ROUNDS
        )
        stages = {name: _measure_stages(ask[name], questions) for name in ask}
        first, *others = questions
        turns = iter([ask["learned"](first).turn for _ in others])

        def give_feedback() -> None:
            if (turn := next(turns, None)) is not None:
                used = [turn.returned[0].node]
                pair.memory.record(Feedback(turn.id, 1.0, used=used))
            pair.memory.store.flush()

        after = [
            _time_after(ask, question, give_feedback, pair.memory.store.flush)
            for question in others
        ]
        return {
            "questions": len(questions),
            **_compare(pairs),
            "after_feedback": _compare(after),
            "stages": stages,
        }


def _time_after(
    ask: Mapping[str, Callable[[tuple[str, Vector]], Any]],
    question: tuple[str, Vector],
    give_feedback: Callable[[], None],
    flush: Callable[[], None],
) -> tuple[float, float]:
    """Milliseconds of one query, learned after a feedback and cold, each asked once before."""
    give_feedback()
    learned, _ = time_call(partial(ask["learned"], question))
    flush()
    cold, _ = time_call(partial(ask["cold"], question))
    return learned * 1000, cold * 1000


def _compare(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    learned, cold = zip(*pairs, strict=True)
    ratio, low, high = bootstrap_median([mine / other for mine, other in pairs])
    return {
        "cold_ms": float(np.median(cold)),
        "learned_ms": float(np.median(learned)),
        "ratio": ratio,
        "ratio_ci95": [low, high],
    }


def _ask(memory: CrabPath, namespace: str, *, split: bool) -> Callable[[tuple[str, Vector]], Any]:
    def ask(question: tuple[str, Vector]) -> Any:
        text, vector = question
        return memory.retrieve(
            text, k=_SHOWN, vector=vector, namespace=namespace, one_per_document=split
        )

    return ask


def _measure_stages(
    ask: Callable[[tuple[str, Vector]], Any], questions: list[tuple[str, Vector]]
) -> dict[str, float]:
    turns = [ask(question).turn for question in questions]
    stages = {name: [turn.latency_ms[name] for turn in turns] for name in ("seeds", "walk", "rank")}
    stages["steps"] = [len(turn.steps) for turn in turns]
    return {name: float(np.median(values)) for name, values in stages.items()}
