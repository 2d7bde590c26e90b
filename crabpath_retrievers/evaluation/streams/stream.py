"""Run a stream for every learner on one memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.progress import bar
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.methods import RetrievedChunk
from crabpath_retrievers.evaluation.run_methods import MethodRun
from crabpath_retrievers.evaluation.streams.learners import (
    BetaCounts,
    CrabPathLearner,
    FrozenLearner,
    MovingAverage,
    QueryCache,
    StreamLearner,
)
from crabpath_retrievers.evaluation.streams.prequential import (
    StreamPass,
    StreamSchedule,
    run_stream,
)
from crabpath_retrievers.evaluation.streams.simulated_feedback import FeedbackSimulator
from crabpath_retrievers.evaluation.streams.summary import score_pass, summarize_stream

FROZEN = "cold"
LEARNER_FACTORIES: Mapping[str, Callable[[CrabPath, bool], StreamLearner]] = MappingProxyType(
    {
        "learned": CrabPathLearner,
        "beta": lambda memory, distinct: BetaCounts(FrozenLearner(memory, distinct)),
        "average": lambda memory, distinct: MovingAverage(FrozenLearner(memory, distinct)),
        "cache": lambda memory, distinct: QueryCache(FrozenLearner(memory, distinct)),
    }
)


class StreamResult(NamedTuple):
    """Answers of a learner in its first pass, and the figures of the whole stream."""

    run: MethodRun
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """Configuration of a stream: learners, feedback, schedule and cut-offs."""

    learners: tuple[str, ...]
    simulator: FeedbackSimulator
    schedule: StreamSchedule
    ks: tuple[int, ...]

    def run(
        self, dataset: Dataset, embeddings: Embeddings, settings: Settings | None = None
    ) -> dict[str, StreamResult]:
        """Figures by learner, each beside those of the frozen twin on the same order."""
        with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
            memory.add_documents(dataset.documents, split=dataset.split, progress=bar)
            frozen = self._run_passes(FROZEN, FrozenLearner(memory, dataset.split), memory, dataset)
            twin = [score_pass(dataset, one, self.ks) for one in frozen]
            figures = {}
            for name in self.learners:
                done = self._run_passes(
                    name, LEARNER_FACTORIES[name](memory, dataset.split), memory, dataset
                )
                own = [score_pass(dataset, one, self.ks) for one in done]
                summary = summarize_stream(own, twin, done, seed=self.schedule.seed)
                figures[name] = StreamResult(_method_run(done[0], dataset), summary)
        return figures

    def _run_passes(
        self, name: str, learner: StreamLearner, memory: CrabPath, dataset: Dataset
    ) -> list[StreamPass]:
        return run_stream(
            name,
            learner,
            dataset,
            memory.embedder,
            self.simulator,
            self.schedule,
            max(self.ks),
        )


def _method_run(done: StreamPass, dataset: Dataset) -> MethodRun:
    """A pass in the form of other methods, queries in the order of the data."""
    found = {
        query: [RetrievedChunk(item.chunk.document, item.text) for item in done.found[query]]
        for query in dataset.queries
    }
    return MethodRun(found, done.rank_ms, 0.0)
