"""A data set with the one memory that all who learn from it share."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_lab.scoring.measures import PerQuery
from crabpath_lab.scratch import open_scratch
from crabpath_lab.streams.learners import (
    CrabPathLearner,
    FrozenLearner,
    StreamLearner,
)
from crabpath_lab.streams.prequential import (
    StreamPass,
    StreamSchedule,
    run_stream,
)
from crabpath_lab.streams.simulated_feedback import FeedbackSimulator
from crabpath_lab.streams.stream import score_pass
from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.routing import Router

DOCUMENTS_READ = 5  # documents that a chain reads
DROPPED = 0.2  # share of the words that later passes leave out
USED_FEEDBACK = FeedbackSimulator("used", 0.0, DOCUMENTS_READ)


@dataclass(slots=True)
class PairedLearners:
    """One data set, indexed once.

    Attributes:
        name: Of the data set.
        dataset: Questions, documents, labels.
        embeddings: The embedder of all texts.
        memory: Holds the documents; what is learned stays in namespaces that are forgotten.
        ks: Cut-offs, rising.
        passes: Passes that the frozen twin makes, at least 1.
    """

    name: str
    dataset: Dataset
    embeddings: Embeddings
    memory: CrabPath
    ks: tuple[int, ...]
    passes: int
    _others: ExitStack
    _frozen: list[StreamPass] = field(default_factory=list)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the measures that are reported."""
        return (*(f"full@{k}" for k in self.ks), f"recall@{DOCUMENTS_READ}")

    def with_settings(self, settings: Settings, router: Router | None = None) -> CrabPath:
        """The same memory under other settings, or another router: it shares store and index."""
        memory = self.memory
        store, index, embedder = memory.store, memory.index, memory.embedder
        other = CrabPath(Services(store, index, embedder, settings=settings, router=router))
        # It closes what it shares when it goes, so it has to live as long as the pair.
        return self._others.enter_context(closing(other))

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace that has learned nothing; forgotten afterwards, so the store stays small."""
        try:
            yield name
        finally:
            self.memory.forget(namespace=name)

    def schedule(self, epochs: int = 1, seed: int = 0) -> StreamSchedule:
        """A stream over the questions."""
        return StreamSchedule(epochs, seed, DROPPED)

    def run_frozen(self) -> list[StreamPass]:
        """What is answered before any feedback, with seed 0; asked once.

        The first pass does not depend on the order of the questions.
        """
        if not self._frozen:
            learner = FrozenLearner(self.memory, self.dataset.split)
            schedule = self.schedule(self.passes)
            self._frozen = self.run_stream("frozen", learner, USED_FEEDBACK, schedule)
        return self._frozen

    def run_learning(
        self,
        namespace: str,
        simulator: FeedbackSimulator,
        schedule: StreamSchedule,
        memory: CrabPath | None = None,
    ) -> list[StreamPass]:
        """What is answered while a namespace learns.

        Args:
            namespace: Who learns.
            simulator: Says what is reported after each answer.
            schedule: Order and passes.
            memory: The memory under other settings; None for the usual ones.
        """
        learner = CrabPathLearner(memory or self.memory, self.dataset.split, namespace)
        return self.run_stream(namespace, learner, simulator, schedule)

    def score_pass(self, done: StreamPass) -> PerQuery:
        """Scores of a pass, in the order in which its questions were asked."""
        return score_pass(self.dataset, done, self.ks)

    def score_pass_in_order(self, done: StreamPass) -> PerQuery:
        """Scores of a pass in the order of the data, so that passes of any order are comparable."""
        return self.score_pass(
            StreamPass({query: done.found[query] for query in self.dataset.queries})
        )

    def reword_queries(self) -> Mapping[str, str]:
        """The questions as a second pass asks them, by id."""
        schedule = self.schedule(2)
        order = schedule.order_queries(list(self.dataset.queries))
        return {
            q: schedule.reword(self.dataset.queries[q], 1, place) for place, q in enumerate(order)
        }

    def run_stream(
        self,
        who: str,
        learner: StreamLearner,
        simulator: FeedbackSimulator,
        schedule: StreamSchedule,
    ) -> list[StreamPass]:
        """The passes of any learner on this data set; ``who`` stands beside the progress bar."""
        name, embedder = f"{self.name}, {who}", self.memory.embedder
        return run_stream(name, learner, self.dataset, embedder, simulator, schedule, self.ks[-1])


@contextmanager
def open_paired_learners(
    name: str, dataset: Dataset, embeddings: Embeddings, ks: tuple[int, ...], *, passes: int = 1
) -> Iterator[PairedLearners]:
    """Index a data set in a temporary memory.

    Args:
        name: Of the data set.
        dataset: What is indexed and asked.
        embeddings: The embedder.
        ks: Cut-offs, rising.
        passes: Passes that the frozen twin makes.
    """
    with open_scratch(embeddings=embeddings) as memory, ExitStack() as others:
        memory.add_documents(dataset.documents, split=dataset.split, progress=bar)
        yield PairedLearners(name, dataset, embeddings, memory, ks, passes, others)
