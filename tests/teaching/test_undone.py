"""Undoing feedback that told something: its note goes with it, unless others told it too."""

import pytest
import sqlalchemy as sa
from tables import moves, nodes, overlay

from crabpath_retrievers import Feedback
from crabpath_retrievers.config import LearningSettings, NoteSettings
from crabpath_retrievers.feedback.outside import Outside
from crabpath_retrievers.learning.notes import note_id
from crabpath_retrievers.storage.apply import Writer

RIGHT = "Strawberries are red as well."
QUESTION = "Which fruit is red?"
NOTE = note_id("correction", "default", RIGHT)
ONCE = LearningSettings(neurogenesis=True, policy_gradient=False, hebbian=False)


def corrected(memory, query=QUESTION, **fields):
    """Ask, then correct what came; returns the id of the feedback."""
    turn = memory.retrieve(query, k=4).turn.id
    return memory.record(Feedback(turn, -1.0, correction=RIGHT, **fields)).feedback_id


def told(memory):
    """Ids of the episodes that recall notes."""
    key = memory.store.walk.clock("default").key
    return [e for e in memory.store.learned.episode_ids(key) if e.startswith("note-")]


def test_the_note_of_a_correction_goes(memory, pupil):
    """With all that came with it: edges, episode, vectors; the answer is as it was."""
    before = pupil.found()
    feedback = corrected(memory)
    memory._recorder._catch_up(1)
    assert NOTE in pupil.found()
    assert memory.undo(feedback).status == "undone"
    assert pupil.found() == before
    assert (pupil.facts(NOTE), pupil.weights(), memory.info()["notes"]) == (None, {}, 0)
    assert told(memory) == []
    clock = memory.store.walk.clock("default")
    assert clock.notes == 0
    if memory._notes._beside.kept:
        for side in (memory._notes._beside, memory._episodes._beside):
            assert side.of(clock.key).search(memory.embedder.query(RIGHT), 9) == []


def test_undone_beside_the_process_that_has_the_index(memory, pupil):
    """The vector of a note that is gone finds nothing."""
    feedback = corrected(memory)
    memory._recorder._catch_up(1)
    assert Outside(memory.store).undoing.undo(feedback, None, None).status == "undone"
    assert NOTE not in pupil.found()
    assert memory.info()["notes"] == 0


@pytest.mark.parametrize("first", ["told", "fed back"])
def test_what_somebody_told_as_well_stays(memory, pupil, first):
    """In whatever order; only what the feedback learned goes."""
    if first == "told":
        memory.correct(RIGHT)
    feedback = corrected(memory)
    if first != "told":
        memory.correct(RIGHT)
    memory.undo(feedback)
    assert pupil.facts(NOTE).feedback is None
    assert NOTE in pupil.found(RIGHT)


def test_the_same_correction_in_two_feedbacks(memory, pupil):
    """The note stays until both are undone, and answers the question of the other one alone."""
    first = corrected(memory)
    weights = pupil.weights()
    second = corrected(memory, "Which berry?")
    assert len(told(memory)) == 2
    memory.undo(second)
    assert pupil.facts(NOTE).feedback == first
    assert pupil.weights() == {edge: pytest.approx(w) for edge, w in weights.items()}
    assert len(told(memory)) == 1
    memory.undo(first)
    assert (pupil.facts(NOTE), pupil.weights(), told(memory)) == (None, {}, [])


def test_the_first_of_two_is_undone(memory, pupil):
    """The later feedback keeps the note, until it is undone itself."""
    first, second = corrected(memory), corrected(memory, "Which berry?")
    memory.undo(first)
    assert pupil.facts(NOTE).feedback == second
    assert len(told(memory)) == 1
    memory.undo(second)
    assert pupil.facts(NOTE) is None


def test_a_success_that_only_used_the_note_does_not_keep_it(memory, pupil):
    """What is used in other feedback is no second telling."""
    feedback = corrected(memory)
    turn = pupil.ask().turn.id
    later = memory.record(Feedback(turn, 1.0, used=[NOTE])).feedback_id
    memory.undo(feedback)
    assert pupil.facts(NOTE) is None
    assert memory.undo(later).status == "undone"


def test_a_use_is_taken_back(memory, pupil):
    """A note counts one success less; it never counts below none."""
    memory.teach("Cherries are red.", id="n")
    ids = [
        memory.record(Feedback(pupil.ask().turn.id, 1.0, used=["n"])).feedback_id for _ in range(2)
    ]
    assert pupil.facts("n").uses == 2
    memory.undo(ids[0])
    assert pupil.facts("n").uses == 1
    memory.undo(ids[1])
    assert pupil.facts("n").uses == 0


def test_what_neurogenesis_made_goes(opens, pupils, monkeypatch):
    """The answer of the feedback that is undone is no note any more."""
    monkeypatch.setattr("crabpath_retrievers.learning.neurogenesis.closed_gate", lambda *_: None)
    with opens(learning=ONCE, note=NoteSettings(min_tokens=1)) as memory:
        turn = memory.retrieve(QUESTION, k=4).turn.id
        memory.record(Feedback(turn, 1.0, answer="Apples.", used=[], feedback_id="f"))
        assert memory.info()["notes"] == 1
        memory.undo("f")
        assert memory.info()["notes"] == 0
        assert pupils(memory).weights() == {}


def test_every_weight_has_a_move_and_no_move_outlives_its_weight(memory):
    """Also where a note was replaced, or told twice."""
    memory.teach("One.", id="n", related=["a", "b"])
    memory.teach("Two.", id="n", related=["b", "c"])
    memory.teach("Two.", id="n", related=["c"])
    corrected(memory)
    with memory.store.reading() as connection:
        edges = [
            {tuple(row) for row in connection.execute(sa.select(t.c.source, t.c.target, t.c.kind))}
            for t in (overlay, moves)
        ]
    assert edges[0] == edges[1]


def test_a_restored_snapshot_has_the_notes_of_then(memory, pupil):
    """Later ones go, with all that came with them; those that were undone since come back."""
    memory.teach("Cherries are red.", id="old", query=QUESTION, related=["a"])
    feedback = corrected(memory)
    memory._recorder._catch_up(1)
    known, kept = pupil.found(), memory.snapshot()
    memory.undo(feedback)
    memory.teach("Limes are green.", id="new", query="Which fruit is green?", related=["b"])
    memory.teach("Cherries are black.", id="old", query=QUESTION)
    memory._recorder._catch_up(1)
    memory.restore(kept)
    assert pupil.found() == known
    assert "new" not in pupil.found("Limes are green.")
    assert pupil.facts("new") is None
    assert (
        memory.store.catalog.documents(["old"], namespace=1)["old"].content == "Cherries are red."
    )
    assert (memory.info()["notes"], len(told(memory))) == (2, 2)
    assert pupil.weights()["old", "a", "taught"] == pytest.approx(0.6, rel=1e-3)
    assert memory.undo(feedback).note.startswith("it was undone before")


def test_what_was_forgotten_does_not_come_back(memory, pupil):
    """No snapshot keeps it, and nobody else's note is touched."""
    memory.teach("Cherries are red.", id="old", query=QUESTION, related=["a"])
    memory.teach("Plums are blue.", id="other", namespace="ann")
    kept = memory.snapshot()
    memory.forget(ids=["old"])
    memory.restore(kept)
    assert pupil.weights() == {}
    assert "old" not in pupil.found()
    assert "other" in pupil.found(namespace="ann")


def test_an_id_that_somebody_else_has_now_stays_theirs(memory, pupil):
    """A note comes back only under an id that is free."""
    memory.teach("Cherries are red.", id="x")
    kept = memory.snapshot()
    with memory.store._engine.begin() as connection:  # as maintenance does: no forgetting
        writer = Writer(connection, memory.store._fulltext)
        writer._notes._remove(nodes.c.id == "x")
    memory.teach("Plums are blue.", id="x", namespace="ann")
    memory.restore(kept)
    assert "x" in pupil.found(namespace="ann")
    assert "x" not in pupil.found()


def test_a_forgotten_namespace_keeps_nothing(memory, pupil):
    """Notes, moves and lessons go together."""
    corrected(memory)
    memory.forget(namespace="default")
    with memory.store.reading() as connection:
        left = connection.scalar(sa.select(sa.func.count()).select_from(moves))
    assert (left, memory.info()["notes"], pupil.weights()) == (0, 0, {})
