"""A stream: the same for everyone, scored before it teaches, and learned from."""

from typing import ClassVar

import pytest

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


@pytest.fixture(scope="module")
def memory(small, cached):
    with CrabPath.open(embeddings=cached) as memory:
        memory.add_documents(small.documents, split=False)
        yield memory


class Watching:
    """Notes the order of what happens to it."""

    seen: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, inner):
        self.inner, self.last = inner, ""

    def rank(self, query, vector, k):
        self.seen.append(("rank", query))
        self.last = query
        return self.inner.rank(query, vector, k)

    def learn(self, vector, ranked, signal):
        self.seen.append(("learn", self.last))


def schedule(small, memory, learner, **options):
    simulator = FeedbackSimulator("used", 0.0, 3)
    return run_stream(
        "test", learner, small, memory.embedder, simulator, StreamSchedule(**options), 3
    )


@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_every_answer_is_given_before_its_feedback(small, memory, dropped):
    """Words are left out in later passes only."""
    watching = Watching(FrozenLearner(memory, distinct=False))
    watching.seen.clear()
    schedule(small, memory, watching, epochs=2, dropped=dropped)
    kinds = [kind for kind, _ in watching.seen]
    assert kinds == ["rank", "learn"] * 24
    asked = [query for kind, query in watching.seen if kind == "rank"]
    assert sorted(asked[:12]) == sorted(small.queries.values())
    assert (asked[:12] == asked[12:]) is (not dropped)


def test_all_learners_meet_the_same_questions(small, memory):
    one = schedule(small, memory, FrozenLearner(memory, distinct=False), seed=3)
    other = schedule(small, memory, CrabPathLearner(memory, distinct=False), seed=3)
    third = schedule(small, memory, FrozenLearner(memory, distinct=False), seed=4)
    assert list(one[0].found) == list(other[0].found) != list(third[0].found)


def test_the_frozen_twin_and_trivial_learners_leave_no_trace(small, memory):
    frozen = FrozenLearner(memory, distinct=False)
    before = memory.info()
    for learner in (frozen, BetaCounts(frozen), MovingAverage(frozen), QueryCache(frozen)):
        schedule(small, memory, learner)
    assert memory.info() == before
