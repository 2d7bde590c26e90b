"""Run a stream for every learner on one memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    NAMESPACE,
    BetaCounts,
    CrabPathLearner,
    FrozenLearner,
    MovingAverage,
    NearestNeighbours,
    QueryCache,
    StreamLearner,
)
from crabpath_retrievers.evaluation.streams.prequential import (
    REPAIR_ARMS,
    StreamPass,
    StreamSchedule,
    run_stream,
)
from crabpath_retrievers.evaluation.streams.simulated_feedback import FeedbackSimulator
from crabpath_retrievers.evaluation.streams.summary import (
    score_pass,
    summarize_repair,
    summarize_stream,
)

FROZEN = "cold"
LEARNER_FACTORIES: Mapping[str, Callable[[FrozenLearner], StreamLearner]] = MappingProxyType(
    {
        "learned": lambda frozen: CrabPathLearner(frozen.memory, frozen.distinct),
        "knn": NearestNeighbours,
        "beta": BetaCounts,
        "average": MovingAverage,
        "cache": QueryCache,
    }
)


class StreamResult(NamedTuple):
    """Answers of a learner, one per question, and the figures of the whole stream."""

    run: MethodRun
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """Configuration of a stream: learners, feedback, schedule, cut-offs, documents shown."""

    learners: tuple[str, ...]
    simulator: FeedbackSimulator
    schedule: StreamSchedule
    ks: tuple[int, ...]
    shown: int

    def run(
        self, dataset: Dataset, embeddings: Embeddings, settings: Settings | None = None
    ) -> dict[str, StreamResult]:
        """Figures by learner, each beside those of the frozen twin on the same order."""
        parts, seed = self.schedule.list_parts(dataset), self.schedule.seed
        arms = REPAIR_ARMS if self.schedule.kind == "repair" else REPAIR_ARMS[:1]
        with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
            memory.add_documents(dataset.documents, split=dataset.split, progress=bar)
            frozen = self._run_passes(FROZEN, arms[0], memory, dataset)
            twin = [score_pass(dataset, one, self.ks) for one in frozen]
            figures = {}
            for name in self.learners:
                scores = {}
                for arm in arms:  # the last one is reported
                    done = self._run_passes(name, arm, memory, dataset)
                    scores[arm] = [score_pass(dataset, one, self.ks) for one in done]
                summary = summarize_stream(scores[arms[-1]], twin, parts, done, seed=seed)
                if len(arms) > 1:
                    summary["repair"] = summarize_repair(scores, parts, seed=seed)
                figures[name] = StreamResult(_method_run(done, dataset), summary)
        return figures

    def _run_passes(
        self, name: str, arm: str, memory: CrabPath, dataset: Dataset
    ) -> list[StreamPass]:
        """The passes of a new learner."""
        memory.forget(namespace=NAMESPACE)
        frozen = FrozenLearner(memory, dataset.split)
        simulator = replace(self.simulator, chunks=_find_first_chunks(memory, dataset))
        return run_stream(
            name,
            frozen if name == FROZEN else LEARNER_FACTORIES[name](frozen),
            dataset,
            memory.embedder,
            simulator,
            replace(self.schedule, arm=arm),
            self.shown,
        )


def _find_first_chunks(memory: CrabPath, dataset: Dataset) -> dict[str, str]:
    """Id of the first chunk by id of the document."""
    documents = [document.id for document in dataset.documents if document.id]
    chunks = memory.store.catalog.find_chunks(documents=documents)
    return {c.document: c.id for c in sorted(chunks, key=lambda c: -c.position)}


def _method_run(done: list[StreamPass], dataset: Dataset) -> MethodRun:
    """The first answer to each question, or that after a correction, in the data's order."""
    later = len(done[0].found) < len(dataset.queries)
    answers = {q: f for one in (done if later else done[::-1]) for q, f in one.found.items()}
    found = {
        query: [RetrievedChunk(item.chunk.document, item.text) for item in answers[query]]
        for query in dataset.queries
    }
    return MethodRun(found, done[0].rank_ms, 0.0)
