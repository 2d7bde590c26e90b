"""Undoing feedback that made a note: the note goes with it, unless others taught it too."""

import pytest
from tables import nodes

from crabpath_retrievers import Feedback
from crabpath_retrievers.learning.rules.notes import make_note_id
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage.write.notes import delete_notes
from crabpath_retrievers.storage.write.transaction import Transaction

RIGHT = "Strawberries are red as well."
QUESTION = "Which fruit is red?"
NOTE = make_note_id("correction", "default", RIGHT)


def give_correction(memory, query=QUESTION):
    """Ask, then correct what came; returns the id of the feedback."""
    turn = memory.retrieve(query, k=4).turn.id
    return memory.record(Feedback(turn, -1.0, correction=RIGHT)).feedback_id


def count_questions(memory):
    """How many episodes recall notes."""
    key = memory.store.walk.get_clock("default").key
    return sum(e.startswith("note-") for e in memory.store.learned.episode_ids(key))


@pytest.mark.both_databases
def test_the_note_of_a_correction_goes(memory, host, index_vectors):
    """With edges, episode and vectors; the answer is as it was."""
    before = host.found()
    feedback = give_correction(memory)
    index_vectors(memory)
    assert NOTE in host.found()
    assert memory.undo(feedback).status == "undone"
    assert host.found() == before
    assert (host.facts(NOTE), host.weights(), memory.info()["notes"]) == (None, {}, 0)
    assert count_questions(memory) == 0
    clock = memory.store.walk.get_clock("default")
    assert clock.notes == 0
    if memory._services.notes._collections.available:
        for side in (memory._services.notes._collections, memory._services.episodes._collections):
            assert side.of(clock.key).search(memory.embedder.query(RIGHT), 9) == []


def test_undone_beside_the_process_that_has_the_index(memory, host, index_vectors):
    """Also where a success used the note since: it keeps no note, and is undone, too."""
    feedback = give_correction(memory)
    index_vectors(memory)
    later = memory.record(Feedback(host.answer().turn.id, 1.0, used=[NOTE])).feedback_id
    assert StandaloneLearner(memory.store).history.undo(feedback, None, None).status == "undone"
    assert NOTE not in host.found()
    assert memory.info()["notes"] == 0
    assert memory.undo(later).status == "undone"


@pytest.mark.parametrize("taught_first", [True, False])
def test_what_somebody_taught_as_well_stays(memory, host, taught_first):
    """Uses that were counted are taken back."""
    if taught_first:
        memory.correct(RIGHT)
    feedback = give_correction(memory)
    if not taught_first:
        memory.correct(RIGHT)
    memory.undo(feedback)
    assert host.facts(NOTE).feedback is None
    assert NOTE in host.found(RIGHT)
    use = [Feedback(host.answer().turn.id, 1.0, used=[NOTE]) for _ in range(2)]
    ids = [memory.record(one).feedback_id for one in use]
    for number, feedback_id in enumerate(ids):
        assert host.facts(NOTE).uses == 2 - number
        memory.undo(feedback_id)
    assert host.facts(NOTE).uses == 0


@pytest.mark.parametrize("undone", [0, 1])
def test_the_same_correction_in_two_feedbacks(memory, host, undone):
    """The note stays until both are undone, and answers the question of the other one alone."""
    first = give_correction(memory)
    weights = host.weights()
    feedbacks = [first, give_correction(memory, "Which berry?")]
    assert count_questions(memory) == 2
    memory.undo(feedbacks[undone])
    assert host.facts(NOTE).feedback == feedbacks[1 - undone]
    assert count_questions(memory) == 1
    if undone == 1:
        assert host.weights() == {edge: pytest.approx(w) for edge, w in weights.items()}
    memory.undo(feedbacks[1 - undone])
    assert (host.facts(NOTE), host.weights(), count_questions(memory)) == (None, {}, 0)


def test_a_restored_snapshot_has_the_notes_of_then(memory, host, index_vectors):
    """Later ones go, with all that came with them; those that were undone since come back."""
    memory.teach("Cherries are red.", id="old", query=QUESTION, related=["a"])
    feedback = give_correction(memory)
    index_vectors(memory)
    known, kept = host.found(), memory.namespaces.snapshot()
    memory.undo(feedback)
    memory.teach("Limes are green.", id="new", query="Which fruit is green?", related=["b"])
    memory.teach("Cherries are black.", id="old", query=QUESTION)
    index_vectors(memory)
    memory.namespaces.restore(kept)
    assert host.found() == known
    assert "new" not in host.found("Limes are green.")
    assert host.facts("new") is None
    old = memory.store.catalog.documents(["old"], namespace=1)["old"]
    assert old.content == "Cherries are red."
    assert (memory.info()["notes"], count_questions(memory)) == (2, 2)
    assert host.weights()["old", "a", "taught"] == pytest.approx(0.6, rel=1e-3)
    assert memory.undo(feedback).note.startswith("it was undone before")


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_snapshot_brings_back_no_forgotten_note_and_takes_no_id(memory, host, forgotten):
    """What was forgotten is kept nowhere; an id that somebody else has by now stays theirs."""
    memory.teach("Cherries are red.", id="x", query=QUESTION, related=["a"])
    memory.teach("Plums are blue.", id="other", namespace="ann")
    kept = memory.namespaces.snapshot()
    if forgotten:
        memory.forget(ids=["x"])
    else:
        with memory.store._engine.begin() as connection:  # as maintenance does: no forgetting
            delete_notes(Transaction(connection, memory.store._fulltext), nodes.c.id == "x")
        memory.teach("Plums are ripe.", id="x", namespace="ann")
    memory.namespaces.restore(kept)
    assert host.weights() == {}
    assert "x" not in host.found()
    assert "other" in host.found(namespace="ann")
    assert ("x" in host.found(namespace="ann")) is not forgotten
