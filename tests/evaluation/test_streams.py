"""Streams: the same for everyone, scored before they teach; what hosts report in them."""

from typing import ClassVar

import numpy as np
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
from crabpath_retrievers.evaluation.streams.simulated_feedback import (
    FeedbackSimulator,
    ReturnedChunk,
)


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


SHOWN = [ReturnedChunk(f"{d}-chunk", d) for d in "abc"]
ANSWER = "42"


def signal(kind, gold, noise=0.0, needed=2, seed=0):
    simulator = FeedbackSimulator(kind, noise, needed)
    return simulator.simulate(SHOWN, frozenset(gold), ANSWER, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", ["used", "outcome"])
def test_noise_flips_its_share(kind):
    """A fifth of 2,000 reports, or of their documents, is wrong."""
    clean = signal(kind, "ab")
    noisy = [signal(kind, "ab", noise=0.2, seed=seed) for seed in range(2000)]
    if kind == "outcome":
        wrong = np.mean([found.outcome != clean.outcome for found in noisy])
    else:
        wrong = np.mean(["a-chunk" not in found.used for found in noisy])
    assert wrong == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(
    ("kind", "gold", "expected"),
    [
        # Of the relevant documents those that were returned are named, if there are any.
        ("used", "bz", (1.0, ("b-chunk",), None)),
        ("used", "z", (-1.0, (), None)),
        # Two documents are read; what stands third does not help.
        ("outcome", "ab", (1.0, None, None)),
        ("outcome", "ac", (-1.0, None, None)),
        ("outcome", "az", (-1.0, None, None)),
        # An answer comes only from a chain that had all evidence.
        ("answer", "ab", (1.0, None, ANSWER)),
        ("answer", "az", (-1.0, None, None)),
    ],
)
def test_each_kind_by_hand(kind, gold, expected):
    assert signal(kind, gold) == expected


@pytest.mark.parametrize(
    ("gold", "outcome", "used"),
    [
        ("ab", 1.0, "ab"),
        ("b", 1.0, "b"),
        ("bz", -1.0, "ab"),
        ("yz", -1.0, "ab"),
        ("bc", -1.0, "ab"),
        ("xyz", -1.0, "ab"),
    ],
)
def test_a_chain_follows_as_many_documents_as_it_needs(gold, outcome, used):
    """What is relevant among those it reads; for each that is missing, the best other one."""
    assert signal("followed", gold) == (outcome, tuple(f"{d}-chunk" for d in used), None)


def test_a_wrong_outcome_changes_nothing_of_what_was_followed():
    """So a failure blames relevant documents, and a success praises others."""
    for gold in ("ab", "az"):
        clean = signal("followed", gold)
        noisy = [signal("followed", gold, noise=0.2, seed=seed) for seed in range(2000)]
        assert {found.used for found in noisy} == {clean.used}
        wrong = np.mean([found.outcome != clean.outcome for found in noisy])
        assert wrong == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("shown", [[], SHOWN[:1], SHOWN])
def test_the_same_turns_are_wrong_whatever_was_returned(shown):
    """One draw per turn, so that learners that return different documents stay paired."""
    simulator, rng = FeedbackSimulator("followed", 0.2, 2), np.random.default_rng(7)
    for _ in range(20):
        simulator.simulate(shown, frozenset("a"), None, rng)
    other = np.random.default_rng(7)
    other.random(20)
    assert rng.random() == other.random()
