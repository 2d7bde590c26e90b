"""Undoing feedback: all that it taught goes, all that others taught stays; on both databases."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crabpath_retrievers import Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.core.graph import EdgeKind

QUERIES = ["Which fruit is red?", "What stands above the Grass?"]
A_FEEDBACK = st.fixed_dictionaries(
    {
        "query": st.integers(0, len(QUERIES) - 1),
        "explore": st.sampled_from([False, 1, 2]),
        "outcome": st.sampled_from([1.0, 0.7, 0.0, -1.0]),
        "used": st.sampled_from([["a", "c"], ["a", "b", "c"], ["b"], [], None]),
        "source": st.sampled_from(["human", "self"]),
        "late": st.booleans(),
    }
)
FEEDBACKS = st.lists(A_FEEDBACK, min_size=3, max_size=8)
FADING = {  # weights fade within a few lessons
    "half_life": 8.0,
    "learning_rate": 0.4,
    "promotion_threshold": 1,
    "inhibition_threshold": 1,
}
QUICK = settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture
def pages(open_pages):
    """Three pages with edges to follow, to learn and to forget."""
    with open_pages(**FADING) as memory:
        yield memory


def learn(memory, namespace, given):
    """Ask, then give feedback as ``given``; returns its id."""
    answer = memory.retrieve(
        QUERIES[given["query"]], k=3, namespace=namespace, explore=given["explore"]
    )
    about = None if given["late"] else answer.turn.id
    fields = {name: given[name] for name in ("used", "source")}
    receipt = memory.record(Feedback(about, given["outcome"], namespace=namespace, **fields))
    assert receipt.status == "applied"
    return receipt.feedback_id


@QUICK
@given(feedbacks=FEEDBACKS)
def test_undone_in_reverse_everything_is_as_it_was(pages, state_of, assert_same, feedbacks):
    """Weights, counts, usage, episodes, ranker, baseline and decay, after each one.

    Two agents on one corpus learn apart (CrabPath paper §6.2), and structure is shared.
    """
    namespace, other = uuid.uuid4().hex, uuid.uuid4().hex
    learn(pages, other, feedbacks[0])
    neighbour, structure = state_of(pages, other), pages.info()["edges"]
    before, ids = [], list[str]()
    for one in feedbacks:
        before.append(state_of(pages, namespace))
        ids.append(learn(pages, namespace, one))
    while ids:
        assert pages.undo(ids.pop()).status == "undone"
        assert_same(state_of(pages, namespace), before.pop())
    assert (state_of(pages, other), pages.info()["edges"]) == (neighbour, structure)


def test_the_pages_are_learned_in_all_ways(pages, state_of):
    """Pointers of the text and learned ones move, twice too: else the properties say little."""
    one = {"explore": False, "outcome": 1.0, "source": "human", "late": False, "query": 0}
    for used in (["a", "b", "c"], ["a", "c"]):
        learn(pages, "ann", {**one, "used": used})
    learn(pages, "ann", {**one, "outcome": -1.0, "used": ["b"]})
    found = state_of(pages, "ann")
    kinds = [EdgeKind(kind) for _, _, kind in found[tables.overlay.name]]
    assert {EdgeKind.STOP, EdgeKind.MENTIONED_BY, EdgeKind.CO_USED, EdgeKind.INHIBITS} <= set(kinds)
    assert len(found[tables.weight_changes.name]) > len(kinds)


@QUICK
@given(feedbacks=FEEDBACKS, data=st.data())
def test_undone_in_any_order_nothing_is_left(pages, state_of, feedbacks, data):
    namespace = uuid.uuid4().hex
    ids = [learn(pages, namespace, {**one, "outcome": abs(one["outcome"])}) for one in feedbacks]
    for feedback_id in data.draw(st.permutations(ids)):
        assert pages.undo(feedback_id).status == "undone"
    left, fresh = state_of(pages, namespace), state_of(pages, "never seen")
    assert {t for t in fresh if t.startswith("crabpath_") and left[t]} == set()
    assert left["mean"][()] == pytest.approx(fresh["mean"][()], rel=1e-5, abs=1e-6)
    assert left["precision"][()] == pytest.approx(fresh["precision"][()], rel=1e-5, abs=1e-6)
    assert left["baseline"] == fresh["baseline"]


def test_removed_documents_stay_removed(memory, host):
    for feedback_id, outcome in (("f", -1.0), ("g", 1.0)):
        turn = host.ask()
        memory.record(Feedback(turn, outcome, used=["a", "b"], feedback_id=feedback_id))
    memory.forget("a")
    assert memory.undo("g").status == "undone"
    assert set(host.usage()) == {"b", "c"}
    keys = set(memory.store.learned.keys("abc").values())
    found = memory.store.learned.edges("default", sorted(keys)).counts
    assert {node for a, b, _ in found for node in (a, b)} <= keys


async def test_its_turns_can_be_learned_from_again(open_memory, host_of):
    """What was learned in between stays; undone feedback stays undone, here off the event loop."""
    run = str(uuid.uuid4())
    with open_memory(apply="external") as memory:
        given = Feedback(host_of(memory).ask(run_id=run), 1.0, used=["a"], feedback_id="f")
        for _ in range(2):
            memory.record(given)
        waiting = memory.record(Feedback(host_of(memory).ask(), 1.0)).feedback_id
        assert memory.undo(waiting).status == "undone"  # and is never learned from
    with open_memory() as memory:
        host = host_of(memory)
        second = memory.record(Feedback(host.ask(), 1.0, used=["b"])).feedback_id
        assert (host.learned(), host.status(waiting)) == (2, "undone")
        # By its turn id, or by the run id of the host.
        assert await memory.aio.undo(turn_id=run) == ("f", "undone", None)
        assert memory.store.learned.find_consumers([given.turn_id]) == {}
        with pytest.raises(NotFoundError, match="nothing was learned from turn"):
            memory.undo(turn_id=run)
        assert host.usage() == {"a": (0.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 1.0)}
        key = memory.store.walk.get_clock("default").key
        (episode,) = memory.store.learned.latest_episodes(key, 10)
        assert (episode.turns, episode.documents) == (1.0, {"a": -1.0, "b": 1.0, "c": -1.0})
        assert host.status(second) == "applied"
        again = memory.record(given)
        assert again.status == "undone"
        assert "give feedback under another id" in again.note
        assert memory.record(Feedback(given.turn_id, 1.0, used=["b"])).status == "applied"
        assert host.usage()["b"] == (2.0, 0.0)


def test_what_cannot_be_undone(memory, host, state_of):
    """What was undone or refused, what is not there, several things at a time; nothing changes."""
    turn = host.ask("ada")
    memory.record(Feedback(turn, 1.0, used=["a"], feedback_id="f"))
    memory.record(Feedback("nope", 1.0, feedback_id="refused"))
    memory.record(Feedback(host.ask("ada"), 1.0, used=["b"], feedback_id="undone"))
    memory.undo("undone")
    before, learned = state_of(memory, "ada"), host.learned("ada")
    assert memory.undo("undone") == ("undone", "undone", "it was undone before")
    note = "it was refused, so nothing was learned from it"
    assert memory.undo("refused") == ("refused", "refused", note)
    for wrong in (
        {"feedback_id": "nope"},
        {"turn_id": "nope"},
        {"feedback_id": "f", "namespace": "grace"},
        {"turn_id": turn, "namespace": "grace"},
    ):
        with pytest.raises(NotFoundError):
            memory.undo(**wrong)
    for wrong in ({}, {"feedback_id": "f", "turn_id": turn}):
        with pytest.raises(InvalidInputError, match="exactly one of feedback_id and turn_id"):
            memory.undo(**wrong)
    assert (state_of(memory, "ada"), host.learned("ada")) == (before, learned)
    assert memory.undo("f", namespace="ada").status == "undone"


def test_concurrent_undoing_and_learning(memory, host, state_of):
    """Ten threads at once: each feedback is taken back once, the others stay."""
    ids = [memory.record(Feedback(host.ask(), 1.0, used=["a"])).feedback_id for _ in range(10)]
    turns = [host.ask() for _ in range(5)]
    with ThreadPoolExecutor(10) as pool:
        found = [pool.submit(memory.undo, feedback_id) for feedback_id in ids[:5]]
        for turn in turns:
            pool.submit(memory.record, Feedback(turn, 1.0, used=["a"]))
    assert [receipt.result().status for receipt in found] == ["undone"] * 5
    assert host.usage()["a"] == (10.0, 0.0)
    assert state_of(memory, "default")["baseline"][()] == pytest.approx([1 / 3, 10])
