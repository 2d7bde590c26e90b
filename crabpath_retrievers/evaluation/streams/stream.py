"""Running a stream for every learner on one memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import Settings
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.methods import Found
from crabpath_retrievers.evaluation.run_methods import Run
from crabpath_retrievers.evaluation.streams.learners import (
    BetaCounts,
    Frozen,
    Learned,
    Learner,
    MovingAverage,
    QueryCache,
)
from crabpath_retrievers.evaluation.streams.prequential import Course, Pass, follow
from crabpath_retrievers.evaluation.streams.simulated_feedback import Judge
from crabpath_retrievers.evaluation.streams.summary import scored, summarised
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.progress import bar

FROZEN = "cold"
LEARNERS: Mapping[str, Callable[[CrabPath, bool], Learner]] = MappingProxyType(
    {
        "learned": Learned,
        "beta": lambda memory, distinct: BetaCounts(Frozen(memory, distinct)),
        "average": lambda memory, distinct: MovingAverage(Frozen(memory, distinct)),
        "cache": lambda memory, distinct: QueryCache(Frozen(memory, distinct)),
    }
)


class Streamed(NamedTuple):
    """What a learner answered in its first pass, and the figures of the whole stream."""

    run: Run
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream to be run: who learns, from what, in which order, to which depth."""

    learners: tuple[str, ...]
    judge: Judge
    course: Course
    ks: tuple[int, ...]

    def run(
        self, dataset: Dataset, embeddings: Embeddings, settings: Settings | None = None
    ) -> dict[str, Streamed]:
        """Figures by learner, each beside those of the frozen twin on the same order."""
        with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
            memory.add_documents(dataset.documents, split=dataset.split, progress=bar)
            frozen = self._passes(FROZEN, Frozen(memory, dataset.split), memory, dataset)
            twin = [scored(dataset, one, self.ks) for one in frozen]
            figures = {}
            for name in self.learners:
                done = self._passes(name, LEARNERS[name](memory, dataset.split), memory, dataset)
                own = [scored(dataset, one, self.ks) for one in done]
                summary = summarised(own, twin, done, seed=self.course.seed)
                figures[name] = Streamed(_run(done[0], dataset), summary)
        return figures

    def _passes(
        self, name: str, learner: Learner, memory: CrabPath, dataset: Dataset
    ) -> list[Pass]:
        return follow(
            name,
            learner,
            dataset,
            memory.embedder,
            self.judge,
            self.course,
            max(self.ks),
        )


def _run(done: Pass, dataset: Dataset) -> Run:
    """A pass as other methods report theirs, queries in the order of the data."""
    found = {
        query: [Found(item.shown.document, item.text) for item in done.found[query]]
        for query in dataset.queries
    }
    return Run(found, done.rank_ms, 0.0)
