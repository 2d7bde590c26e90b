"""Claims that hold for every learner of a stream."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_lab.streams.learners import (
    CrabPathLearner,
    FrozenLearner,
    RankedDocument,
    StreamLearner,
    TaughtAnswer,
    require_ranking,
    require_turn,
)
from crabpath_lab.streams.simulated_feedback import ReturnedChunk, SimulatedFeedback
from crabpath_retrievers.crabpath import CrabPath

QUESTION = "Who owns the harbour?"
NOWHERE = (ReturnedChunk("nowhere", "nowhere"),)


def _ask(learner: StreamLearner, frozen: FrozenLearner, k: int = 3) -> list[RankedDocument]:
    """Rank as a stream does, and require a ranking that it can use."""
    ranked = learner.rank(QUESTION, frozen.memory.embedder.query(QUESTION), k)
    catalog = frozen.memory.store.catalog
    known = {node.document for node in catalog.documents(catalog.all_ids()).values()}
    require_ranking(ranked, k, None if isinstance(learner, CrabPathLearner) else known)
    assert ranked, f"rank must find documents for k={k}, and returned none"
    assert all(one.text for one in ranked), f"rank must return texts, not {ranked}"
    return ranked


def _teach(
    learner: StreamLearner, frozen: FrozenLearner, signal: SimulatedFeedback
) -> TaughtAnswer:
    """Ask and give feedback; the lesson names the turn, if the learner has one."""
    ranked = _ask(learner, frozen)
    lesson = TaughtAnswer(frozen.memory.embedder.query(QUESTION), ranked, signal)
    turn = learner.learn(lesson)
    require_turn(turn)
    return lesson._replace(turn=turn)


def _list_signals(ranked: Sequence[RankedDocument]) -> Iterator[SimulatedFeedback]:
    """Feedback of every kind of host on a ranking."""
    first = ranked[0].chunk
    for outcome in (1.0, 0.0, -1.0):
        yield SimulatedFeedback(outcome)
        yield SimulatedFeedback(outcome, ())
        yield SimulatedFeedback(outcome, (first.chunk,))
    yield SimulatedFeedback(1.0, answer=ranked[0].text)
    yield SimulatedFeedback(1.0, (first.chunk,), relevant=(first,))
    yield SimulatedFeedback(1.0, (), relevant=NOWHERE)


class LearnerTests:
    """Conformance of a :class:`~crabpath_lab.streams.learners.StreamLearner`.

    Subclass it, and override the fixture ``make_learner``.
    """

    @pytest.fixture
    def make_learner(self) -> Callable[[FrozenLearner], StreamLearner]:
        """Function that makes a learner, knowing nothing, of a frozen one; to be overridden.

        A stream calls what ``--learners`` names in the same way; a class is such a function.
        """
        raise NotImplementedError

    @pytest.fixture
    def writes(self) -> bool:
        """Whether the learner writes to the memory, in a namespace of its own."""
        return False

    @pytest.fixture
    def takes_back(self) -> bool:
        """Whether a corrected lesson leaves no trace in the learner's rankings."""
        return False

    @pytest.fixture
    def memory(self, tmp_path: Path) -> Iterator[CrabPath]:
        """A memory with a few documents."""
        embedder = DeterministicFakeEmbedding(size=16)
        vectors = InMemoryVectorStore(embedder)
        with CrabPath.open(tmp_path / "memory", embeddings=embedder, vectors=vectors) as memory:
            memory.add_documents([Document(f"Text {n}.", id=f"d{n}") for n in range(8)])
            yield memory

    @pytest.fixture
    def frozen(self, memory: CrabPath) -> FrozenLearner:
        """Ranking of the memory without any feedback."""
        return FrozenLearner(memory, distinct=False)

    def test_it_ranks_the_best_documents(
        self, make_learner: Callable[[FrozenLearner], StreamLearner], frozen: FrozenLearner
    ) -> None:
        """At most k, each once, with texts; equal until something is learned."""
        learner = make_learner(frozen)
        for k in (1, 3, 50):
            first, second = (_ask(learner, frozen, k) for _ in range(2))
            chunks = [one.chunk for one in first]
            said = "rank must return the same again while nothing is learned"
            assert chunks == [one.chunk for one in second], said

    def test_it_learns_from_feedback_of_every_kind(
        self, make_learner: Callable[[FrozenLearner], StreamLearner], frozen: FrozenLearner
    ) -> None:
        """Feedback may be an outcome, uses, an answer, or relevant documents not returned."""
        learner = make_learner(frozen)
        for signal in _list_signals(_ask(learner, frozen)):
            _teach(learner, frozen, signal)
        _ask(learner, frozen)

    def test_every_lesson_can_be_corrected(
        self, make_learner: Callable[[FrozenLearner], StreamLearner], frozen: FrozenLearner
    ) -> None:
        """The correction is feedback of the same or of another kind."""
        learner = make_learner(frozen)
        signals = [*_list_signals(_ask(learner, frozen))]
        for wrong, right in zip(signals, reversed(signals), strict=True):
            learner.correct(_teach(learner, frozen, wrong), right)
        _ask(learner, frozen)

    def test_a_corrected_learner_ranks_as_one_that_was_never_wrong(
        self,
        make_learner: Callable[[FrozenLearner], StreamLearner],
        frozen: FrozenLearner,
        *,
        takes_back: bool,
    ) -> None:
        """Only for learners that can take a lesson back."""
        if not takes_back:
            pytest.skip("it does not take lessons back entirely")
        ids = sorted(frozen.memory.store.catalog.all_ids())[-3:]
        right = SimulatedFeedback(1.0, (), relevant=tuple(ReturnedChunk(i, i) for i in ids))
        clean, misled = make_learner(frozen), make_learner(frozen)
        _teach(clean, frozen, right)
        wrong = _teach(misled, frozen, SimulatedFeedback(1.0, (), relevant=NOWHERE))
        misled.correct(wrong, right)
        ranks = [[one.chunk for one in _ask(each, frozen)] for each in (clean, misled)]
        said = "after correct, rank must return what it does where nothing was wrong"
        assert ranks[0] == ranks[1], said

    def test_it_leaves_no_trace_in_the_memory(
        self,
        make_learner: Callable[[FrozenLearner], StreamLearner],
        frozen: FrozenLearner,
        *,
        writes: bool,
    ) -> None:
        """Other learners of the stream use the same memory."""
        if writes:
            pytest.skip("it learns in the memory")
        learner, before = make_learner(frozen), frozen.memory.info()
        for signal in _list_signals(_ask(learner, frozen)):
            learner.correct(_teach(learner, frozen, signal), signal)
        said = "a learner must not write to the memory, which others use"
        assert frozen.memory.info() == before, said
