"""Streams: the same for everyone, scored before they teach; what hosts report in them."""

import uuid
from typing import ClassVar

import numpy as np
import pytest

from crabpath_lab.streams import (
    REPAIR_ARMS,
    BetaCounts,
    CrabPathLearner,
    FeedbackSimulator,
    FrozenLearner,
    MovingAverage,
    NearestNeighbours,
    QueryCache,
    ReturnedChunk,
    SimulatedFeedback,
    Stream,
    StreamPart,
    StreamSchedule,
    TaughtAnswer,
    run_stream,
    summarize_repair,
)
from crabpath_lab.testing import LearnerTests
from crabpath_retrievers import CrabPath


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

    def learn(self, lesson):
        self.seen.append(("learn", self.last))

    def correct(self, lesson, right):
        self.seen.append(("correct", ""))


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


TRIVIAL = (BetaCounts, MovingAverage, QueryCache, NearestNeighbours)


@pytest.mark.parametrize("kind", [FrozenLearner, CrabPathLearner, *TRIVIAL])
class TestLearners(LearnerTests):
    @pytest.fixture
    def memory(self, memory):
        """A real sample, as in the other tests."""
        return memory

    @pytest.fixture
    def make_learner(self, kind):
        def make(frozen):
            if kind is CrabPathLearner:
                return CrabPathLearner(frozen.memory, distinct=False, namespace=uuid.uuid4().hex)
            return frozen if kind is FrozenLearner else kind(frozen)

        return make

    @pytest.fixture
    def writes(self, kind):
        return kind is CrabPathLearner

    @pytest.fixture
    def takes_back(self, kind):
        return kind in (FrozenLearner, BetaCounts, QueryCache, NearestNeighbours)


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
    assert signal(kind, gold)[:3] == expected


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
    assert signal("followed", gold)[:3] == (outcome, tuple(f"{d}-chunk" for d in used), None)


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


def test_relevant_documents_are_named_whether_they_were_returned_or_not():
    """The returned chunk of a document, else its first; with noise, another one in its place."""
    chunks = {document: f"{document}-first" for document in "abz"}
    simulator = FeedbackSimulator("relevant", 0.0, 2, chunks)
    told = simulator.simulate(SHOWN, frozenset("az"), None, np.random.default_rng(0))
    assert [one.chunk for one in told.relevant] == ["a-chunk", "z-first"]
    assert (told.outcome, told.used) == (1.0, ("a-chunk",))
    wrong = simulator.mislead().simulate(SHOWN, frozenset("az"), None, np.random.default_rng(0))
    assert {one.document for one in wrong.relevant} == {"b"}


def test_what_a_host_names_as_relevant_reaches_the_memory(memory, monkeypatch):
    seen = []
    monkeypatch.setattr(f"{CrabPathLearner.__module__}.Feedback", lambda *_, **f: seen.append(f))
    monkeypatch.setattr(CrabPath, "record", lambda *_: None)
    learner = CrabPathLearner(memory, distinct=False)
    for relevant in (None, (SHOWN[0],)):
        learner.learn(TaughtAnswer(None, [], SimulatedFeedback(1.0, ("x",), relevant=relevant)))
    assert seen == [
        {"used": ("x",), "answer": None, "relevant": None},
        {"used": ("x",), "answer": None, "relevant": ["a-chunk"]},
    ]


@pytest.fixture
def gold_of(small, memory):
    """Vector and relevant documents of a question, as feedback names them."""
    query = next(iter(small.queries))
    simulator = FeedbackSimulator("relevant", 0.0, 3, {d.id: d.id for d in small.documents})
    told = simulator.simulate([], small.qrels[query], None, np.random.default_rng(0))
    return small.queries[query], memory.embedder.query(small.queries[query]), told


def test_neighbours_bring_documents_that_were_not_returned(memory, gold_of):
    text, vector, told = gold_of
    learner = NearestNeighbours(FrozenLearner(memory, distinct=False))
    learner.learn(TaughtAnswer(vector, learner.rank(text, vector, 1), told))
    found = learner.rank(text, vector, len(told.relevant))
    assert {r.chunk.document for r in found} == {one.document for one in told.relevant}
    assert all(r.text for r in found)


def test_transfer_asks_new_questions_and_teaches_nothing_about_them(small):
    first, later = StreamSchedule(kind="transfer").plan_passes(small)
    assert {q.query for q in first}.isdisjoint(q.query for q in later)
    assert {q.query for q in (*first, *later)} == set(small.queries)
    assert [q.gets_feedback for q in (*first, *later)] == [True] * 6 + [False] * 6


def test_relevance_drifts_half_way(small):
    """Documents swap with those most like them; each question keeps as many as it had."""
    schedule = StreamSchedule(epochs=2, kind="drift")
    before, after = schedule.plan_passes(small)
    assert all(q.gold == small.qrels[q.query] for q in before)
    changed = [q for q in after if q.gold != small.qrels[q.query]]
    assert changed
    assert all(len(q.gold) == len(small.qrels[q.query]) for q in after)
    moved = {d for q in changed for d in small.qrels[q.query] - q.gold}
    drawn = round(0.1 * len({d for gold in small.qrels.values() for d in gold}))
    assert drawn <= len(moved) <= 2 * drawn
    assert {part.epoch for part in schedule.list_parts(small) if "moved, after" in part.name} == {1}
    assert schedule.judge(small) == small.qrels


def test_a_repair_compares_three_arms_on_the_same_questions(small, cached):
    """What undo and the right feedback win back, beside the same learner never told wrong."""
    arms = [StreamSchedule(kind="repair", arm=arm).plan_passes(small) for arm in REPAIR_ARMS]
    assert arms[1] == arms[2]
    assert [sum(q.wrong for q in passes[0]) > 0 for passes in arms] == [False, True, True]
    assert not any(q.gets_feedback for passes in arms for q in passes[1])
    simulator = FeedbackSimulator("used", 0.0, 3)
    stream = Stream(("learned", "knn"), simulator, StreamSchedule(kind="repair"), (2,), 3)
    for result in stream.run(small, cached).values():
        assert {row["part"] for row in result.figures["repair"]} == {
            *("after", "asked again", "new questions")
        }
        assert len(result.run.found) == len(small.queries)


def test_what_learns_only_to_be_measured_warns_of_nothing(small, cached, caplog):
    """That its memory is temporary, for instance: whoever measures knows that."""
    simulator = FeedbackSimulator("used", 0.0, 3)
    stream = Stream(("learned",), simulator, StreamSchedule(epochs=1), (2,), 3)
    (result,) = stream.run(small, cached).values()
    assert result.run.found
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == []


def test_net_recovery_is_the_share_of_the_loss_that_is_won_back():
    schedule = StreamSchedule(kind="repair")
    scores = {"clean": [1.0] * 8, "wrong": [0.0] * 8, "repaired": [1.0] * 6 + [0.0] * 2}
    arms = {arm: [{}, {"full@5": values}] for arm, values in scores.items()}
    (row,) = summarize_repair(arms, [StreamPart("after", 1, range(8))], seed=schedule.seed)
    assert row["recovery"] == 0.75
    assert row["ci95"][0] < 0.75 < row["ci95"][1]
    arms["wrong"] = arms["clean"]
    (row,) = summarize_repair(arms, [StreamPart("after", 1, range(8))], seed=0)
    assert row["recovery"] is None
