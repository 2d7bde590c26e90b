"""Undoing feedback that told something: its note goes with it, unless others told it too."""

import pytest
import sqlalchemy as sa
from tables import nodes, overlay, weight_changes

from crabpath_retrievers import Feedback
from crabpath_retrievers.config import LearningSettings, NoteSettings
from crabpath_retrievers.learning.rules.notes import make_note_id
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage.write.notes import delete_notes
from crabpath_retrievers.storage.write.transaction import Transaction

RIGHT = "Strawberries are red as well."
QUESTION = "Which fruit is red?"
NOTE = make_note_id("correction", "default", RIGHT)
ONCE = LearningSettings(neurogenesis=True, policy_gradient=False, hebbian=False)


def corrected(memory, query=QUESTION, **fields):
    """Ask, then correct what came; returns the id of the feedback."""
    turn = memory.retrieve(query, k=4).turn.id
    return memory.record(Feedback(turn, -1.0, correction=RIGHT, **fields)).feedback_id


def told(memory):
    """Ids of the episodes that recall notes."""
    key = memory.store.walk.get_clock("default").key
    return [e for e in memory.store.learned.episode_ids(key) if e.startswith("note-")]


def test_the_note_of_a_correction_goes(memory, asker):
    """With all that came with it: edges, episode, vectors; the answer is as it was."""
    before = asker.found()
    feedback = corrected(memory)
    memory._services.recorder._index_waiting(1)
    assert NOTE in asker.found()
    assert memory.undo(feedback).status == "undone"
    assert asker.found() == before
    assert (asker.facts(NOTE), asker.weights(), memory.info()["notes"]) == (None, {}, 0)
    assert told(memory) == []
    clock = memory.store.walk.get_clock("default")
    assert clock.notes == 0
    if memory._services.notes._collections.available:
        for side in (memory._services.notes._collections, memory._services.episodes._collections):
            assert side.of(clock.key).search(memory.embedder.query(RIGHT), 9) == []


def test_undone_beside_the_process_that_has_the_index(memory, asker):
    """The vector of a note that is gone finds nothing."""
    feedback = corrected(memory)
    memory._services.recorder._index_waiting(1)
    assert StandaloneLearner(memory.store).history.undo(feedback, None, None).status == "undone"
    assert NOTE not in asker.found()
    assert memory.info()["notes"] == 0


@pytest.mark.parametrize("first", ["told", "fed back"])
def test_what_somebody_told_as_well_stays(memory, asker, first):
    """In whatever order; only what the feedback learned goes."""
    if first == "told":
        memory.correct(RIGHT)
    feedback = corrected(memory)
    if first != "told":
        memory.correct(RIGHT)
    memory.undo(feedback)
    assert asker.facts(NOTE).feedback is None
    assert NOTE in asker.found(RIGHT)


def test_the_same_correction_in_two_feedbacks(memory, asker):
    """The note stays until both are undone, and answers the question of the other one alone."""
    first = corrected(memory)
    weights = asker.weights()
    second = corrected(memory, "Which berry?")
    assert len(told(memory)) == 2
    memory.undo(second)
    assert asker.facts(NOTE).feedback == first
    assert asker.weights() == {edge: pytest.approx(w) for edge, w in weights.items()}
    assert len(told(memory)) == 1
    memory.undo(first)
    assert (asker.facts(NOTE), asker.weights(), told(memory)) == (None, {}, [])


def test_the_first_of_two_is_undone(memory, asker):
    """The later feedback keeps the note, until it is undone itself."""
    first, second = corrected(memory), corrected(memory, "Which berry?")
    memory.undo(first)
    assert asker.facts(NOTE).feedback == second
    assert len(told(memory)) == 1
    memory.undo(second)
    assert asker.facts(NOTE) is None


def test_a_success_that_only_used_the_note_does_not_keep_it(memory, asker):
    """What is used in other feedback is no second telling."""
    feedback = corrected(memory)
    turn = asker.ask().turn.id
    later = memory.record(Feedback(turn, 1.0, used=[NOTE])).feedback_id
    memory.undo(feedback)
    assert asker.facts(NOTE) is None
    assert memory.undo(later).status == "undone"


def test_a_use_is_taken_back(memory, asker):
    """A note counts one success less; it never counts below none."""
    memory.teach("Cherries are red.", id="n")
    ids = [
        memory.record(Feedback(asker.ask().turn.id, 1.0, used=["n"])).feedback_id for _ in range(2)
    ]
    assert asker.facts("n").uses == 2
    memory.undo(ids[0])
    assert asker.facts("n").uses == 1
    memory.undo(ids[1])
    assert asker.facts("n").uses == 0


def test_what_neurogenesis_made_goes(open_memory, asker_of, monkeypatch):
    """The answer of the feedback that is undone is no note any more."""
    monkeypatch.setattr(
        "crabpath_retrievers.learning.rules.notes.find_closed_gate", lambda *_: None
    )
    with open_memory(learning=ONCE, note=NoteSettings(min_words=1)) as memory:
        turn = memory.retrieve(QUESTION, k=4).turn.id
        memory.record(Feedback(turn, 1.0, answer="Apples.", used=[], feedback_id="f"))
        assert memory.info()["notes"] == 1
        memory.undo("f")
        assert memory.info()["notes"] == 0
        assert asker_of(memory).weights() == {}


def test_every_weight_has_a_move_and_no_move_outlives_its_weight(memory):
    """Also where a note was replaced, or told twice."""
    memory.teach("One.", id="n", related=["a", "b"])
    memory.teach("Two.", id="n", related=["b", "c"])
    memory.teach("Two.", id="n", related=["c"])
    corrected(memory)
    with memory.store.open_reader() as connection:
        edges = [
            {tuple(row) for row in connection.execute(sa.select(t.c.source, t.c.target, t.c.kind))}
            for t in (overlay, weight_changes)
        ]
    assert edges[0] == edges[1]


def test_a_restored_snapshot_has_the_notes_of_then(memory, asker):
    """Later ones go, with all that came with them; those that were undone since come back."""
    memory.teach("Cherries are red.", id="old", query=QUESTION, related=["a"])
    feedback = corrected(memory)
    memory._services.recorder._index_waiting(1)
    known, kept = asker.found(), memory.namespaces.snapshot()
    memory.undo(feedback)
    memory.teach("Limes are green.", id="new", query="Which fruit is green?", related=["b"])
    memory.teach("Cherries are black.", id="old", query=QUESTION)
    memory._services.recorder._index_waiting(1)
    memory.namespaces.restore(kept)
    assert asker.found() == known
    assert "new" not in asker.found("Limes are green.")
    assert asker.facts("new") is None
    assert (
        memory.store.catalog.documents(["old"], namespace=1)["old"].content == "Cherries are red."
    )
    assert (memory.info()["notes"], len(told(memory))) == (2, 2)
    assert asker.weights()["old", "a", "taught"] == pytest.approx(0.6, rel=1e-3)
    assert memory.undo(feedback).note.startswith("it was undone before")


def test_what_was_forgotten_does_not_come_back(memory, asker):
    """No snapshot keeps it, and nobody else's note is touched."""
    memory.teach("Cherries are red.", id="old", query=QUESTION, related=["a"])
    memory.teach("Plums are blue.", id="other", namespace="ann")
    kept = memory.namespaces.snapshot()
    memory.forget(ids=["old"])
    memory.namespaces.restore(kept)
    assert asker.weights() == {}
    assert "old" not in asker.found()
    assert "other" in asker.found(namespace="ann")


def test_an_id_that_somebody_else_has_now_stays_theirs(memory, asker):
    """A note comes back only under an id that is free."""
    memory.teach("Cherries are red.", id="x")
    kept = memory.namespaces.snapshot()
    with memory.store._engine.begin() as connection:  # as maintenance does: no forgetting
        delete_notes(Transaction(connection, memory.store._fulltext), nodes.c.id == "x")
    memory.teach("Plums are blue.", id="x", namespace="ann")
    memory.namespaces.restore(kept)
    assert "x" in asker.found(namespace="ann")
    assert "x" not in asker.found()


def test_a_forgotten_namespace_keeps_nothing(memory, asker):
    """Notes, moves and lessons go together."""
    corrected(memory)
    memory.forget(namespace="default")
    with memory.store.open_reader() as connection:
        left = connection.scalar(sa.select(sa.func.count()).select_from(weight_changes))
    assert (left, memory.info()["notes"], asker.weights()) == (0, 0, {})
