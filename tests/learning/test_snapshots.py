"""Snapshots and the switch that stops learning, on both databases."""

import threading

import pytest
import tables
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.core.changes import AdvanceClock
from crabpath_retrievers.core.changes.history import RestoreSnapshot, TakeSnapshot
from crabpath_retrievers.errors import ConflictError

pytestmark = pytest.mark.both_databases


def learn(memory, host, used, namespace="default", outcome=1.0):
    """Feedback on a turn of its own; returns its id."""
    turn = host.ask(namespace)
    return memory.record(Feedback(turn, outcome, used=used)).feedback_id


def without_history(known):
    """What a namespace knows, without the record of how it came to know it."""
    return {
        name: rows
        for name, rows in known.items()
        if not name.endswith(("feedback_effects", "weight_changes"))
    }


def test_a_snapshot_brings_back_all_that_was_known(memory, host, state_of):
    for _ in range(2):
        learn(memory, host, ["a", "b"])
    before, learned = state_of(memory, "default"), host.learned()
    snapshot = memory.namespaces.snapshot()
    for used, outcome in ((["c"], 1.0), (["a"], -1.0), (["a", "b", "c"], 1.0)):
        learn(memory, host, used, outcome=outcome)
    memory.store.apply([AdvanceClock("default", exponent=0.5)])
    assert state_of(memory, "default") != before
    assert memory.namespaces.restore(snapshot).id == snapshot
    assert state_of(memory, "default") == before
    assert host.learned() > learned + 3, "whoever keeps what it knew must notice"


def test_answers_follow_a_restored_snapshot(memory, host):
    learn(memory, host, ["a"])

    def scores():
        answer = memory.retrieve("Which fruit is red?", record=False)
        return [(item.node.id, item.score) for item in answer.documents]

    before, snapshot = scores(), memory.namespaces.snapshot()
    for _ in range(3):
        learn(memory, host, ["c"])
    assert scores() != before
    memory.namespaces.restore(snapshot)
    assert scores() == before


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


def test_what_was_undone_comes_back_with_an_older_snapshot(memory, host):
    feedback_id = learn(memory, host, ["a"])
    snapshot = memory.namespaces.snapshot()
    memory.undo(feedback_id)
    memory.namespaces.restore(snapshot)
    assert host.usage()["a"] == (1.0, 0.0)
    assert memory.undo(feedback_id).note == "it was undone before"


def test_undoing_after_a_restore_leaves_what_came_back(memory, host, state_of, assert_same):
    ids = [learn(memory, host, ["a", "b"]) for _ in range(2)]
    snapshot = memory.namespaces.snapshot()
    for feedback_id in reversed(ids):
        memory.undo(feedback_id)
    memory.namespaces.restore(snapshot)
    before = state_of(memory, "default")
    assert before[tables.overlay.name]
    memory.undo(learn(memory, host, ["a", "b"]))
    assert_same(state_of(memory, "default"), before)


def test_vanished_documents_are_passed_over(memory, host):
    learn(memory, host, ["a", "b"])
    learn(memory, host, ["a", "b"])
    snapshot = memory.namespaces.snapshot()
    memory.forget("a")
    memory.namespaces.restore(snapshot)
    assert host.usage() == {"b": (2.0, 0.0), "c": (0.0, 2.0)}
    assert memory.info()["learned_weights"] == 0
    answer = memory.retrieve("Which fruit is red?")
    assert {item.node.id for item in answer.documents} == {"b", "c"}


def test_other_namespaces_do_not_notice(memory, host, state_of):
    for namespace in ("ada", "grace"):
        learn(memory, host, ["a"], namespace)
    snapshot, other = memory.namespaces.snapshot("ada"), memory.namespaces.snapshot("grace")
    learn(memory, host, ["b"], "ada")
    before = state_of(memory, "grace")
    memory.namespaces.restore(snapshot)
    assert state_of(memory, "grace") == before
    assert [kept.id for kept in memory.namespaces.snapshots("grace")] == [other]


def test_snapshots_are_listed(memory, host):
    learn(memory, host, ["a"], "ada")
    first = memory.namespaces.snapshot("ada", "before the weekend")
    host.ask("grace")
    second, third = memory.namespaces.snapshot("grace"), memory.namespaces.snapshot("ada")
    assert [kept.id for kept in memory.namespaces.snapshots("ada")] == [third, first]
    assert {kept.id for kept in memory.namespaces.snapshots(None)} == {first, second, third}
    assert memory.namespaces.snapshots() == []
    named = memory.namespaces.snapshots("ada")[1]
    assert (named.name, named.namespace, named.learned) == ("before the weekend", "ada", 1)
    assert named.size > 0


def test_snapshots_are_found_by_name(memory, host):
    learn(memory, host, ["a"], "ada")
    host.ask()
    own, other = memory.namespaces.snapshot("ada", "x"), memory.namespaces.snapshot(name="x")
    assert memory.namespaces.restore("x", namespace="ada").id == own
    assert memory.namespaces.restore("x").id == other


def test_names_are_unique_in_a_namespace(memory, host):
    host.ask()
    memory.namespaces.snapshot(name="x")
    with pytest.raises(InvalidInputError, match="choose another name or delete it"):
        memory.namespaces.snapshot(name="x")
    with pytest.raises(InvalidInputError, match="1 to 200 characters"):
        memory.namespaces.snapshot(name="  ")
    memory.namespaces.delete_snapshot("x")
    memory.namespaces.snapshot(name="x")


def test_what_is_not_there(memory, host):
    """Unknown namespaces, unknown snapshots, those of another namespace, deleted ones."""
    host.ask()
    snapshot = memory.namespaces.snapshot()
    with pytest.raises(NotFoundError, match="'nobody' has neither asked nor learned"):
        memory.namespaces.snapshot("nobody")
    for wrong in (("nope", None), (snapshot, "ada")):
        with pytest.raises(NotFoundError, match="no snapshot"):
            memory.namespaces.restore(wrong[0], namespace=wrong[1])
        with pytest.raises(NotFoundError, match="no snapshot"):
            memory.namespaces.delete_snapshot(wrong[0], namespace=wrong[1])
    memory.namespaces.delete_snapshot(snapshot)
    with pytest.raises(NotFoundError, match="no snapshot"):
        memory.namespaces.restore(snapshot)


def test_snapshots_go_with_their_namespace(memory, host):
    learn(memory, host, ["a"], "ada")
    memory.namespaces.snapshot("ada")
    memory.forget(namespace="ada")
    assert memory.namespaces.snapshots(None) == []


def test_a_restored_episode_is_searchable(tmp_path):
    """Its vector is indexed again; those that came later are gone from the index."""
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document(f"text {i}", id=i) for i in "abc"], split=False)

        def success(query):
            turn = memory.retrieve(query, k=3).turn.id
            memory.record(Feedback(turn, 1.0, used=["b"], feedback_id=query))

        success("who?")
        snapshot = memory.namespaces.snapshot()
        memory.undo("who?")
        success("where?")
        memory._services.episodes.catch_up()
        memory.namespaces.restore(snapshot)
        clock = memory.store.walk.get_clock("default")
        (near,) = memory._services.episodes.near(memory.embedder.query("who?"), clock.key)
        assert near.episode.query == "who?"
        assert memory.index.beside(f"episodes-{clock.key}").count() == 1


def test_a_frozen_namespace_learns_nothing_and_goes_on_answering(memory, host, state_of):
    """With what it has learned until then; others learn, and it does again when it may."""
    learn(memory, host, ["c"])
    turn, before = host.ask(), state_of(memory, "default")
    frozen = memory.retrieve("Which fruit is red?", record=False)
    memory.namespaces.freeze()
    assert "is frozen" in memory.record(Feedback(turn, 1.0, used=["a"])).note
    assert state_of(memory, "default") == before
    again = memory.retrieve("Which fruit is red?", record=False)
    shown = [(item.node.id, item.score) for item in frozen.documents]
    assert [(item.node.id, item.score) for item in again.documents] == shown
    assert shown != [
        (item.node.id, item.score)
        for item in memory.retrieve("Which fruit is red?", namespace="new").documents
    ]
    learn(memory, host, ["a"], "ada")
    assert host.learned("ada") == 1
    memory.namespaces.unfreeze()
    assert memory.record(Feedback(turn, 1.0, used=["a"])).status == "applied"


def test_freezing_meets_feedback_that_is_being_learned(memory, host, state_of, monkeypatch):
    before = state_of(memory, "default")
    turn, changes = host.ask(), type(memory._services.recorder._queue._learner).compute_changes

    def late(*given):
        found = changes(*given)
        memory.namespaces.freeze()
        return found

    monkeypatch.setattr(type(memory._services.recorder._queue._learner), "compute_changes", late)
    receipt = memory.record(Feedback(turn, 1.0, used=["a"]))
    assert receipt.status == "refused"
    assert "is frozen" in receipt.note
    assert without_history(state_of(memory, "default")) == without_history(before)


def test_frozen_namespaces_go_back(memory, host, state_of):
    host.ask()
    snapshot = memory.namespaces.snapshot()
    feedback_id = learn(memory, host, ["a"])
    memory.namespaces.freeze()
    assert memory.undo(feedback_id).status == "undone"
    memory.namespaces.restore(snapshot)
    assert host.usage() == {}
    assert "is frozen" in memory.record(Feedback(host.ask(), 1.0)).note


def test_freezing_twice_and_freezing_nobody(memory, host):
    for _ in range(2):
        memory.namespaces.freeze("new")
    assert "is frozen" in memory.record(Feedback(host.ask("new"), 1.0)).note
    with pytest.raises(InvalidInputError):
        memory.namespaces.freeze("n" * 5000)


def test_snapshots_while_others_learn(memory, host, state_of):
    turns = [host.ask() for _ in range(8)]
    taken = []

    def take():
        while len(taken) < 6:
            taken.append(memory.namespaces.snapshot())

    thread = threading.Thread(target=take)
    thread.start()
    for turn in turns:
        memory.record(Feedback(turn, 1.0, used=["a"]))
    thread.join()
    for snapshot in reversed(taken):
        memory.namespaces.restore(snapshot)
        known = state_of(memory, "default")
        count = known["baseline"][()][1]
        assert (
            host.usage().get("a", (0.0, 0.0))[0]
            == count
            == len(known[tables.feedback_effects.name])
        )


def test_a_snapshot_of_a_namespace_that_vanishes(memory, host):
    for change in (TakeSnapshot("nobody", "s"), RestoreSnapshot("nope")):
        with pytest.raises(ConflictError, match="met another change"):
            memory.store.apply([change])
