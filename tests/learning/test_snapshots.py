"""Snapshots and the switch that stops learning."""

import threading

import pytest
import tables

from crabpath_retrievers import Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.core.changes import AdvanceClock
from crabpath_retrievers.core.changes.history import RestoreSnapshot, TakeSnapshot
from crabpath_retrievers.errors import ConflictError


def learn(memory, host, used, namespace="default", outcome=1.0):
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
        learn(memory, host, ["a", "b"])
    learn(memory, host, ["a"], "grace")
    before, learned, answers = state_of(memory, "default"), host.learned(), rank(memory)
    snapshot, other = memory.namespaces.snapshot(), memory.namespaces.snapshot("grace")
    for used, outcome in ((["c"], 1.0), (["a"], -1.0), (["a", "b", "c"], 1.0)):
        learn(memory, host, used, outcome=outcome)
    memory.store.apply([AdvanceClock("default", exponent=0.5)])
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
    first = learn(memory, host, ["a"])
    snapshot = memory.namespaces.snapshot()
    turn = host.ask()
    later = memory.record(Feedback(turn, 1.0, used=["b"])).feedback_id
    memory.namespaces.restore(snapshot)
    assert host.status(later) == "applied"
    assert "was consumed" in memory.record(Feedback(turn, 1.0)).note
    before = state_of(memory, "default")
    assert memory.undo(later).status == "applied"
    assert state_of(memory, "default") == before
    assert memory.undo(first).status == "undone"
    assert host.usage() == {}


@pytest.mark.both_databases
def test_what_was_undone_comes_back_with_an_older_snapshot(memory, host, state_of, assert_same):
    """It cannot be undone a second time; nothing of a document that was deleted since comes."""
    ids = [learn(memory, host, ["a", "b"]) for _ in range(2)]
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
    memory.undo(learn(memory, host, ["a", "b"]))
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
    learn(memory, host, ["a"], "ada")
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
    for change in (TakeSnapshot("nobody", "s"), RestoreSnapshot("nope")):  # it vanished meanwhile
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
    clock, episodes = memory.store.walk.get_clock("default"), memory._services.episodes
    counted = []
    for feedback_id in (first, second):
        memory.undo(feedback_id)
        if episodes._collections.available:
            counted.append(memory.index.beside(f"episodes-{clock.key}").count())
    assert counted in ([], [1, 0])
    succeed("where?")
    index_vectors(memory)
    memory.namespaces.restore(snapshot)
    clock = memory.store.walk.get_clock("default")
    (near,) = episodes.near(memory.embedder.query("who?"), clock)
    assert near.episode.query == "who?"
    assert not counted or memory.index.beside(f"episodes-{clock.key}").count() == 1


@pytest.mark.both_databases
def test_a_frozen_namespace_learns_nothing_and_goes_on_answering(
    memory, host, state_of, monkeypatch
):
    """With what it has learned until then; others learn, and it does again when it may."""
    learn(memory, host, ["c"])
    turn, before, answers = host.ask(), state_of(memory, "default"), rank(memory)
    learner = type(memory._services.recorder.queue._learner)
    compute = learner.learn

    def compute_late(*given):
        """The switch falls between reading and writing."""
        found = compute(*given)
        memory.namespaces.freeze()
        return found

    with monkeypatch.context() as late:
        late.setattr(learner, "learn", compute_late)
        meanwhile = memory.record(Feedback(turn, 1.0, used=["a"]))
    memory.namespaces.freeze()
    for receipt in (meanwhile, memory.record(Feedback(turn, 1.0, used=["a"]))):
        assert (receipt.status, "is frozen" in receipt.note) == ("refused", True)
    assert state_of(memory, "default") == before
    assert rank(memory) == answers != rank(memory, "new")
    learn(memory, host, ["a"], "ada")
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
