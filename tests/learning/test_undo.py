"""Undo of feedback, snapshots and frozen namespaces: what was taught goes, the rest stays."""

import random
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import tables
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crabpath_retrievers import EdgeKind, Feedback, InvalidInputError, NotFoundError, Receipt
from crabpath_retrievers.errors import ConflictError
from tests.seams import get_services, make_change

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
@pytest.mark.slow
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
    learn(pages, "ann", {**one, "used": ["a", "b", "c"], "query": 1})
    learn(pages, "ann", {**one, "outcome": -1.0, "used": ["b"]})
    found = state_of(pages, "ann")
    kinds = [EdgeKind(kind) for _, _, kind in found[tables.overlay.name]]
    assert {EdgeKind.STOP, EdgeKind.CO_USED, EdgeKind.INHIBITS} <= set(kinds)
    assert {EdgeKind.MENTION, EdgeKind.MENTIONED_BY} & set(kinds)
    assert len(found[tables.weight_changes.name]) > len(kinds)


@pytest.mark.slow
@QUICK
@given(feedbacks=FEEDBACKS, data=st.data())
def test_undone_in_any_order_nothing_is_left(pages, state_of, feedbacks, data):
    namespace = uuid.uuid4().hex
    ids = [learn(pages, namespace, one) for one in feedbacks]
    for feedback_id in data.draw(st.permutations(ids)):
        assert pages.undo(feedback_id).status == "undone"
    left, fresh = state_of(pages, namespace), state_of(pages, "never seen")
    assert {t for t in fresh if t.startswith("crabpath_") and left[t]} == set()
    assert left["mean"][()] == pytest.approx(fresh["mean"][()], rel=1e-5, abs=1e-6)
    assert left["precision"][()] == pytest.approx(fresh["precision"][()], rel=1e-5, abs=1e-6)
    assert left["baseline"] == fresh["baseline"]


def read_answers(memory):
    """What is answered, with the log-odds and features of each document."""
    answers = (memory.retrieve(query, k=3, record=False) for query in QUERIES)
    return [
        [(item.node, item.log_odds, item.features) for item in answer.turn.returned]
        for answer in answers
    ]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["newest first", "oldest first", "any"])
def test_lies_are_taken_back_past_the_blocks_of_the_calibration(
    pages, state_of, assert_same, order
):
    """Of several users, with corrections and failures among them, and feedback learned before."""
    choose = random.Random(order)  # noqa: S311
    for number in range(30):
        learn(pages, "default", make_feedback(choose, used=["a", "c"], number=number))
    before, answers, ids = state_of(pages, "default"), read_answers(pages), list[str]()
    for number in range(70):
        given = make_feedback(choose, used=["b"], number=number)
        ids.append(lie(pages, choose, given, f"the answer is {number}"))
    assert read_answers(pages) != answers
    if order == "newest first":
        ids.reverse()
    elif order == "any":
        choose.shuffle(ids)
    for feedback_id in ids:
        assert pages.undo(feedback_id).status == "undone"
    for now, then in zip(read_answers(pages), answers, strict=True):
        assert [node for node, *_ in now] == [node for node, *_ in then]
        for (_, odds, features), (_, odds_then, features_then) in zip(now, then, strict=True):
            assert odds == pytest.approx(odds_then, abs=1e-9)
            assert features == pytest.approx(features_then, abs=1e-9)
    assert_same(forget_times(state_of(pages, "default")), forget_times(before))


def make_feedback(choose, used, number):
    """Feedback on one of the questions, mostly with use."""
    outcome = choose.choice([1.0, 0.7, -1.0])
    used = choose.choice([used, used, [], None])
    explore, late = choose.choice([False, number]), False
    return {"outcome": outcome, "used": used, "explore": explore, "late": late} | {
        "query": number % len(QUERIES),
        "source": "human",
    }


def lie(memory, choose, given, correction):
    """Feedback of one of three users; some with a correction. Returns its id."""
    turn = memory.retrieve(QUERIES[given["query"]], k=3, explore=given["explore"]).turn
    returned = {item.node for item in turn.returned}
    wrong = correction if given["outcome"] < 0 and choose.random() < 0.5 else None
    used = None if given["used"] is None else [node for node in given["used"] if node in returned]
    fields = {"used": used, "user": choose.choice(["eve", "mallory", None]), "correction": wrong}
    receipt = memory.record(Feedback(turn.id, given["outcome"], **fields))
    assert receipt.status == "applied"
    return receipt.feedback_id


def forget_times(state):
    """Without the turns in which episodes were last added to: another one may have come later."""
    table = tables.episodes.name
    return state | {
        table: {(name, *rest): row for (name, _clock, *rest), row in state[table].items()}
    }


def test_removed_documents_stay_removed(memory, host):
    for feedback_id, outcome in (("f", -1.0), ("g", 1.0)):
        turn = host.ask()
        memory.record(Feedback(turn, outcome, used=["a", "b"], feedback_id=feedback_id))
    memory.forget("a")
    assert memory.undo("g").status == "undone"
    assert set(host.usage()) == {"b", "c"}
    keys = set(memory.store.learned.keys("abc").values())
    found = memory.store.learned.edges("default", sorted(keys))[1]
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
        assert await memory.aio.undo(turn_id=run) == Receipt("f", "undone")
        assert host.consumers([memory.store.turns.get(run).id]) == {}
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
    assert memory.undo("undone") == Receipt("undone", "undone", "it was undone before")
    note = "it was refused, so nothing was learned from it"
    assert memory.undo("refused") == Receipt("refused", "refused", note)
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


def give(memory, host, used, namespace="default", outcome=1.0):
    """Feedback on a turn of its own; returns its id."""
    turn = host.ask(namespace)
    return memory.record(Feedback(turn, outcome, used=used)).feedback_id


def rank(memory, namespace="default"):
    """What is answered, with scores, without a trace."""
    answer = memory.retrieve("Which fruit is red?", namespace=namespace, record=False)
    return [(item.node.id, item.score) for item in answer.documents]


@pytest.mark.both_databases
def test_a_snapshot_brings_back_all_that_was_known(memory, host, state_of):
    """To the last digit, and the way there; what came later is gone; others do not notice."""
    for _ in range(2):
        give(memory, host, ["a", "b"])
    give(memory, host, ["a"], "grace")
    before, learned, answers = state_of(memory, "default"), host.learned(), rank(memory)
    snapshot, other = memory.namespaces.snapshot(), memory.namespaces.snapshot("grace")
    for used, outcome in ((["c"], 1.0), (["a"], -1.0), (["a", "b", "c"], 1.0)):
        give(memory, host, used, outcome=outcome)
    memory.store.apply([make_change("advance_clock", "default", exponent=0.5)])
    assert state_of(memory, "default") != before
    assert rank(memory) != answers
    grace = state_of(memory, "grace")
    assert memory.namespaces.restore(snapshot).id == snapshot
    assert state_of(memory, "default") == before
    assert rank(memory) == answers
    assert host.learned() > learned + 3, "whoever keeps what it knew must notice"
    assert state_of(memory, "grace") == grace
    assert [kept.id for kept in memory.namespaces.snapshots("grace")] == [other]


def test_feedback_after_a_restored_snapshot(memory, host, state_of):
    """What came before it can be undone, what came later stays applied and is not there."""
    first = give(memory, host, ["a"])
    snapshot = memory.namespaces.snapshot()
    turn = host.ask()
    later = memory.record(Feedback(turn, 1.0, used=["b"])).feedback_id
    memory.namespaces.restore(snapshot)
    assert host.status(later) == "applied"
    before = state_of(memory, "default")
    assert memory.undo(later).status == "applied"
    assert state_of(memory, "default") == before
    again = memory.record(Feedback(turn, 1.0, used=["c"]))
    assert (again.status, host.status(later)) == ("applied", "undone")
    assert host.usage()["c"] == (1.0, 1.0)
    assert memory.undo(again.feedback_id).status == "undone"
    assert memory.undo(first).status == "undone"
    assert host.usage() == {}


@pytest.mark.both_databases
def test_what_was_undone_comes_back_with_an_older_snapshot(memory, host, state_of, assert_same):
    """It cannot be undone a second time; nothing of a document that was deleted since comes."""
    ids = [give(memory, host, ["a", "b"]) for _ in range(2)]
    snapshot = memory.namespaces.snapshot()
    memory.namespaces.freeze()  # taking back is no learning: the switch stays as it is
    for feedback_id in reversed(ids):
        assert memory.undo(feedback_id).status == "undone"
    memory.namespaces.restore(snapshot)
    assert host.usage()["a"] == (2.0, 0.0)
    assert memory.undo(ids[0]).note == "it was undone before"
    assert "is frozen" in memory.record(Feedback(host.ask(), 1.0)).note
    memory.namespaces.unfreeze()
    before = state_of(memory, "default")
    # Also weights of which nobody knows any more what moved them.
    assert before[tables.overlay.name]
    memory.undo(give(memory, host, ["a", "b"]))
    assert_same(state_of(memory, "default"), before)
    memory.forget("a")
    memory.namespaces.restore(snapshot)
    assert host.usage() == {"b": (2.0, 0.0), "c": (0.0, 2.0)}
    assert memory.info()["learned_weights"] == 0
    assert {node for node, _ in rank(memory)} == {"b", "c"}


@pytest.mark.both_databases
def test_snapshots_are_listed(memory, host):
    """Newest first, of one namespace or of all, with what they hold, until it is forgotten.

    Names are unique in a namespace; without one "default" counts.
    """
    give(memory, host, ["a"], "ada")
    first = memory.namespaces.snapshot("ada", "before the weekend")
    host.ask()
    second, third = (
        memory.namespaces.snapshot(name="before the weekend"),
        memory.namespaces.snapshot("ada"),
    )
    assert [kept.id for kept in memory.namespaces.snapshots("ada")] == [third, first]
    assert {kept.id for kept in memory.namespaces.snapshots(None)} == {first, second, third}
    assert memory.namespaces.snapshots("grace") == []
    named = memory.namespaces.snapshots("ada")[1]
    assert (named.name, named.namespace, named.learned) == ("before the weekend", "ada", 1)
    assert named.size > 0
    assert memory.namespaces.restore(named.name, namespace="ada").id == first
    assert memory.namespaces.restore(named.name).id == second
    with pytest.raises(InvalidInputError, match="choose another name or delete it"):
        memory.namespaces.snapshot(name=named.name)
    with pytest.raises(InvalidInputError, match="1 to 200 characters"):
        memory.namespaces.snapshot(name="  ")
    memory.forget(namespace="ada")
    assert [kept.id for kept in memory.namespaces.snapshots(None)] == [second]
    memory.namespaces.delete_snapshot(named.name)
    assert memory.namespaces.snapshots() == []


def test_snapshots_are_in_order_after_the_clock_was_set_back(memory, host, monkeypatch):
    give(memory, host, ["a"])
    made = [memory.namespaces.snapshot()]
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now - 86_400)
    made += [memory.namespaces.snapshot() for _ in range(2)]
    assert [kept.id for kept in memory.namespaces.snapshots()] == made[::-1]


def test_what_is_not_there(memory, host):
    """Unknown namespaces, unknown snapshots, those of another namespace, deleted ones."""
    host.ask()
    snapshot = memory.namespaces.snapshot()
    with pytest.raises(NotFoundError, match="'nobody' has neither asked nor learned"):
        memory.namespaces.snapshot("nobody")
    for name, namespace in (("nope", None), (snapshot, "ada"), (snapshot, None)):
        if namespace is None and name == snapshot:
            memory.namespaces.delete_snapshot(snapshot)
        for act in (memory.namespaces.restore, memory.namespaces.delete_snapshot):
            with pytest.raises(NotFoundError, match="no snapshot"):
                act(name, namespace=namespace)
    for change in (
        make_change("write_snapshot", "nobody", "s"),
        make_change("apply_snapshot", "nope"),
    ):  # it vanished meanwhile
        with pytest.raises(ConflictError, match="met another change"):
            memory.store.apply([change])


def test_vectors_of_episodes_go_and_come_back(memory, host, index_vectors):
    """Undone with the last turn of an episode; restored, and what came later is gone."""

    def succeed(query):
        turn = memory.retrieve(query, k=3).turn.id
        return memory.record(Feedback(turn, 1.0, used=["b"])).feedback_id

    first, second = succeed("who?"), succeed("who?")
    snapshot = memory.namespaces.snapshot()
    index_vectors(memory)
    clock, episodes = memory.store.walk.get_clock("default"), get_services(memory).episodes
    counted = []
    for feedback_id in (first, second):
        memory.undo(feedback_id)
        if memory.index.has_collections:
            counted.append(memory.index.open_sibling(f"episodes-{clock.key}").count())
    assert counted in ([], [1, 0])
    succeed("where?")
    index_vectors(memory)
    memory.namespaces.restore(snapshot)
    clock = memory.store.walk.get_clock("default")
    ((episode, _),) = episodes.near(memory.store, memory.embedder.query("who?"), clock)
    assert episode.query == "who?"
    assert not counted or memory.index.open_sibling(f"episodes-{clock.key}").count() == 1


@pytest.mark.both_databases
def test_a_frozen_namespace_learns_nothing_and_goes_on_answering(
    memory, host, state_of, monkeypatch
):
    """With what it has learned until then; others give, and it does again when it may."""
    give(memory, host, ["c"])
    turn, before, answers = host.ask(), state_of(memory, "default"), rank(memory)
    apply = memory.store.apply

    def apply_late(changes):
        """The switch falls between reading and writing."""
        if any(type(change).__name__ == "ConsumeFeedback" for change in changes):
            late.undo()
            memory.namespaces.freeze()
        return apply(changes)

    with monkeypatch.context() as late:
        late.setattr(memory.store, "apply", apply_late)
        meanwhile = memory.record(Feedback(turn, 1.0, used=["a"]))
    memory.namespaces.freeze()
    for receipt in (meanwhile, memory.record(Feedback(turn, 1.0, used=["a"]))):
        assert (receipt.status, "is frozen" in receipt.note) == ("refused", True)
    assert state_of(memory, "default") == before
    assert rank(memory) == answers != rank(memory, "new")
    give(memory, host, ["a"], "ada")
    assert host.learned("ada") == 1
    memory.namespaces.unfreeze()
    assert memory.record(Feedback(turn, 1.0, used=["a"])).status == "applied"
    memory.namespaces.freeze("later")  # who will come is frozen already
    assert "is frozen" in memory.record(Feedback(host.ask("later"), 1.0)).note
    with pytest.raises(InvalidInputError):
        memory.namespaces.freeze("n" * 5000)


def test_snapshots_while_others_learn(memory, host, state_of):
    """A snapshot holds whole lessons: usage and baseline agree in each."""
    turns = [host.ask() for _ in range(6)]
    made = []

    def snapshot():
        while len(made) < 4:
            made.append(memory.namespaces.snapshot())

    thread = threading.Thread(target=snapshot)
    thread.start()
    for turn in turns:
        memory.record(Feedback(turn, 1.0, used=["a"]))
    thread.join()
    for one in reversed(made):
        memory.namespaces.restore(one)
        known = state_of(memory, "default")
        lessons = len(known[tables.feedback_effects.name])
        assert known["baseline"][()][1] == lessons == host.usage().get("a", (0.0,))[0]
