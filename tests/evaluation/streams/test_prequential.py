"""A stream: the same for everyone, scored before it teaches, and learned from."""

from typing import ClassVar

import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.evaluation.streams.learners import (
    BetaCounts,
    CrabPathLearner,
    FrozenLearner,
    MovingAverage,
    QueryCache,
)
from crabpath_retrievers.evaluation.streams.prequential import StreamSchedule, run_stream
from crabpath_retrievers.evaluation.streams.simulated_feedback import FeedbackSimulator
from crabpath_retrievers.evaluation.streams.stream import Stream


@pytest.fixture(scope="module")
def memory(small, cached):
    """A memory over the small sample."""
    with CrabPath.open(embeddings=cached) as memory:
        memory.add_documents(small.documents, split=False)
        yield memory


class Watching:
    """Notes the order of what happens to it."""

    seen: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, inner):
        """Watch ``inner``."""
        self.inner, self.last = inner, ""

    def rank(self, query, vector, k):
        """Note the question."""
        self.seen.append(("rank", query))
        self.last = query
        return self.inner.rank(query, vector, k)

    def learn(self, vector, ranked, signal):
        """Note what is told, and of which question."""
        self.seen.append(("learn", self.last))


def schedule(small, memory, learner, **options):
    """The passes of one learner."""
    simulator = FeedbackSimulator("used", 0.0, 3)
    return run_stream(
        "test", learner, small, memory.embedder, simulator, StreamSchedule(**options), 3
    )


def test_every_answer_is_given_before_its_feedback(small, memory):
    """Rank, learn, rank, learn; each question once a pass."""
    watching = Watching(FrozenLearner(memory, distinct=False))
    watching.seen.clear()
    schedule(small, memory, watching, epochs=2)
    kinds = [kind for kind, _ in watching.seen]
    assert kinds == ["rank", "learn"] * 24
    asked = [query for kind, query in watching.seen if kind == "rank"]
    assert sorted(asked[:12]) == sorted(small.queries.values())
    assert asked[:12] == asked[12:]


def test_all_learners_meet_the_same_questions(small, memory):
    """The order depends on the seed alone."""
    one = schedule(small, memory, FrozenLearner(memory, distinct=False), seed=3)
    other = schedule(small, memory, CrabPathLearner(memory, distinct=False), seed=3)
    third = schedule(small, memory, FrozenLearner(memory, distinct=False), seed=4)
    assert list(one[0].found) == list(other[0].found) != list(third[0].found)


def test_the_frozen_twin_and_trivial_learners_leave_no_trace(small, memory):
    """Nothing is recorded, so nothing can be learned."""
    frozen = FrozenLearner(memory, distinct=False)
    before = memory.info()
    for learner in (frozen, BetaCounts(frozen), MovingAverage(frozen), QueryCache(frozen)):
        schedule(small, memory, learner)
    assert memory.info() == before


def test_words_are_dropped_in_later_passes_only(small, memory):
    """The first pass asks questions as they are."""
    watching = Watching(FrozenLearner(memory, distinct=False))
    watching.seen.clear()
    schedule(small, memory, watching, epochs=2, dropped=0.5)
    asked = [query for kind, query in watching.seen if kind == "rank"]
    assert set(asked[:12]) == set(small.queries.values())
    assert set(asked[12:]) != set(asked[:12])


@pytest.mark.parametrize(
    "name",
    ["learned", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cache", "beta", "average"))],
)
def test_figures_stand_beside_those_of_the_frozen_twin(small, cached, name):
    """Per pass, for the second half and at checkpoints."""
    stream = Stream((name,), FeedbackSimulator("used", 0.0, 2), StreamSchedule(epochs=2), (2,))
    figures = stream.run(small, cached)[name].figures
    assert len(figures["epochs"]) == len(figures["frozen_epochs"]) == 2
    assert set(figures["second_half"]) >= {"full@2", "recall@2"}
    assert figures["checkpoints"][-1]["asked"] == 24
    assert {d["part"] for d in figures["differences"]} == {"epoch 1", "epoch 2", "second half"}


def test_what_was_used_once_comes_earlier_when_it_is_asked_again(small, memory):
    """In the namespace that learned it, and in no other."""
    question = next(iter(small.queries.values()))

    def ids(namespace):
        answer = memory.retrieve(question, k=8, namespace=namespace)
        return answer.turn.id, [item.node.id for item in answer.documents]

    turn, first = ids("ann")
    memory.record(Feedback(turn, 1.0, used=[first[-1]]))
    assert ids("ann")[1].index(first[-1]) < 3
    assert ids("bob")[1] == first
