"""Prequential evaluation: a learner answers each question, is scored, and then gets feedback."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from crabpath_retrievers.core.progress import bar
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.streams.learners import RankedDocument, StreamLearner
from crabpath_retrievers.evaluation.streams.simulated_feedback import FeedbackSimulator
from crabpath_retrievers.vectors.embedder import Embedder


@dataclass(frozen=True, slots=True)
class StreamSchedule:
    """The order of a stream, the same for every learner.

    Attributes:
        epochs: Passes over the questions.
        seed: Draws the order, the words that are dropped, and the noise.
        dropped: Share of the words of a question that later passes leave out, in [0, 1).
    """

    epochs: int = 1
    seed: int = 0
    dropped: float = 0.0

    def order_queries(self, queries: Sequence[str]) -> list[str]:
        """The questions in the order in which they are asked."""
        rng = np.random.default_rng(self.seed)
        return [queries[place] for place in rng.permutation(len(queries))]

    def reword(self, text: str, epoch: int, place: int) -> str:
        """The wording of a question in one pass."""
        if not epoch or not self.dropped:
            return text
        words = text.split()
        rng = np.random.default_rng([self.seed, epoch, place])
        kept = [word for word in words if rng.random() >= self.dropped]
        return " ".join(kept or words)


@dataclass(slots=True)
class StreamPass:
    """Answers of one learner in one pass by query id, with times in milliseconds."""

    found: dict[str, list[RankedDocument]] = field(default_factory=dict)
    rank_ms: list[float] = field(default_factory=list)
    learn_ms: list[float] = field(default_factory=list)


def run_stream(
    name: str,
    learner: StreamLearner,
    dataset: Dataset,
    embedder: Embedder,
    simulator: FeedbackSimulator,
    schedule: StreamSchedule,
    k: int,
) -> list[StreamPass]:
    """Run one learner on the whole stream.

    Args:
        name: Shown beside the progress bar.
        learner: Answers and learns.
        dataset: Its labels are read after each answer.
        embedder: Embeds questions; not timed.
        simulator: Makes the feedback.
        schedule: Order and passes.
        k: Documents per question.

    Returns:
        One pass per epoch, queries in the order in which they were asked.
    """
    order = schedule.order_queries(list(dataset.queries))
    rng = np.random.default_rng([schedule.seed, 1])
    passes = []
    with bar(len(order) * schedule.epochs, description=f"{name}: stream") as advance:
        for epoch in range(schedule.epochs):
            done = StreamPass()
            for place, query in enumerate(order):
                text = schedule.reword(dataset.queries[query], epoch, place)
                vector = embedder.query(text)
                started = time.perf_counter()
                found = learner.rank(text, vector, k)
                ranked_at = time.perf_counter()
                gold = dataset.qrels[query]
                shown = [item.chunk for item in found]
                signal = simulator.simulate(shown, gold, dataset.answers.get(query), rng)
                learning_started = time.perf_counter()
                learner.learn(vector, found, signal)
                done.found[query] = found
                done.rank_ms.append((ranked_at - started) * 1000)
                done.learn_ms.append((time.perf_counter() - learning_started) * 1000)
                advance(1)
            passes.append(done)
    return passes
