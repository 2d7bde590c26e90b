"""Corrections: notes that advise against what they correct, told outright or in feedback."""

import logging

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from tables import turns

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, NotFoundError, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.learning.rules.inhibition import MIN_INHIBITION
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage import GraphStore

RIGHT = "Strawberries are red as well."
QUESTION = "Which fruit is red?"
EXTERNAL = LearningSettings(apply="external")


def test_without_names_the_best_document_of_the_turn_is_wrong(memory, asker):
    """The note advises against it alone, and answers the question of the turn."""
    answer = asker.ask(QUESTION)
    best = answer.documents[0].node.id
    note = memory.correct(RIGHT, turn_id=answer.turn.id)
    inhibited = {edge: w for edge, w in asker.weights().items() if edge[0] == note}
    assert inhibited == {(note, best, "inhibits"): pytest.approx(MIN_INHIBITION)}
    again = asker.ask(QUESTION)
    assert again.documents[0].node.id == note
    (item,) = [item for item in again.turn.returned if item.node == best]
    assert item.features["inhibition"] == pytest.approx(-MIN_INHIBITION * 0.9, abs=0.02)
    facts = asker.facts(note)
    assert (facts.kind, facts.turn, facts.query) == ("correction", answer.turn.id, QUESTION)


def test_named_documents_are_wrong_instead(memory, asker):
    """And where the turn came to them, its entry advises against them, half as much."""
    turn = asker.ask(QUESTION).turn
    entry = max(turn.seeds, key=lambda seed: seed.score).node
    others = sorted(set("abc") - {entry})
    note = memory.correct(RIGHT, turn_id=turn.id, wrong=others)
    assert asker.weights() == {
        **{(note, other, "inhibits"): pytest.approx(MIN_INHIBITION) for other in others},
        **{(entry, other, "inhibits"): pytest.approx(MIN_INHIBITION / 2) for other in others},
    }


def test_inhibition_has_a_bound(memory, asker):
    """However often it is corrected, an entry advises at most that strongly."""
    for number in range(5):
        turn = asker.ask(QUESTION).turn
        memory.correct(f"{RIGHT} {number}", turn_id=turn.id, wrong=["a", "b", "c"])
    inhibitions = [w for (_, _, kind), w in asker.weights().items() if kind == "inhibits"]
    assert min(inhibitions) >= MIN_INHIBITION - 1e-6
    assert set("abc") <= set(asker.found(QUESTION))


def test_nothing_is_wrong_when_told_so(memory, asker):
    """An empty list is an answer, too."""
    turn = asker.ask(QUESTION).turn
    memory.correct(RIGHT, turn_id=turn.id, wrong=[])
    assert asker.weights() == {}


def test_a_correction_without_a_turn(memory, asker):
    """It needs neither turn nor documents; with a question it is recalled."""
    note = memory.correct(RIGHT, wrong="a", related=["b"], query="What is red?")
    weights = {(note, "b", "taught"): pytest.approx(0.6), (note, "a", "inhibits"): MIN_INHIBITION}
    assert asker.weights() == {k: pytest.approx(v) for k, v in weights.items()}
    assert asker.found("What is red?")[0] == note
    assert memory.correct("Bare.")


def test_the_same_correction_changes_nothing(memory, asker):
    """Neither the note nor the inhibition at the entry."""
    turn = asker.ask(QUESTION).turn
    notes = {memory.correct(RIGHT, turn_id=turn.id, wrong=["a", "b"]) for _ in range(3)}
    before = asker.weights()
    assert len(notes) == 1
    memory.correct(RIGHT, turn_id=turn.id, wrong=["a", "b"])
    assert asker.weights() == before


def test_the_namespace_is_that_of_the_turn(memory, asker):
    """Unless it is given; then the turn must be its own."""
    turn = asker.ask(QUESTION, "ann").turn
    note = memory.correct(RIGHT, turn_id=turn.id)
    assert asker.facts(note).namespace == "ann"
    assert memory.correct(RIGHT, turn_id=turn.id, namespace="ann") == note
    with pytest.raises(NotFoundError, match="no turn"):
        memory.correct(RIGHT, turn_id=turn.id, namespace="bob")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"turn_id": "never"}, NotFoundError, "no turn 'never'"),
        ({"turn_id": ""}, NotFoundError, "no turn ''"),
        ({"wrong": ["nowhere"]}, NotFoundError, "'nowhere'"),
        ({"wrong": 1}, InvalidInputError, "wrong must be a list"),
        ({"namespace": ""}, InvalidInputError, "non-empty"),
        ({"authority": "high"}, InvalidInputError, "authority must be one of"),
    ],
)
def test_what_cannot_be_corrected_is_refused(retriever, unchanged, options, error, message):
    """And nothing is kept."""
    with pytest.raises(error, match=message):
        retriever.memory.correct(RIGHT, **options)


def test_a_forgotten_best_document_is_passed_over(memory, asker):
    """The correction itself is kept."""
    answer = asker.ask(QUESTION)
    memory.forget(ids=answer.documents[0].node.id)
    assert memory.correct(RIGHT, turn_id=answer.turn.id) in asker.found(QUESTION)


def corrected(memory, **fields):
    """The one note that feedback with a correction makes, and the receipt."""
    turn = memory.retrieve(QUESTION, k=3).turn
    receipt = memory.record(Feedback(turn.id, -1.0, correction=RIGHT, **fields))
    notes = memory.store.notes.latest(memory.store.walk.get_clock("default").key, 0, 10)
    return turn, notes, receipt


def test_feedback_with_a_correction_makes_a_note(memory, asker):
    """In the same transaction; it stands at its own words and answers the question."""
    turn, (note,), receipt = corrected(memory)
    assert (receipt.status, receipt.note) == ("applied", None)
    facts = asker.facts(note.id)
    assert (facts.kind, facts.turn) == ("correction", turn.id)
    assert facts.feedback == receipt.feedback_id
    assert float(note.vector @ memory.embedder.documents([RIGHT])[0]) == pytest.approx(1, abs=0.01)
    assert asker.found(QUESTION)[0] == note.id
    best = turn.returned[0].node
    assert asker.weights()[note.id, best, "inhibits"] == pytest.approx(MIN_INHIBITION)


def test_what_was_used_in_a_failure_is_corrected(memory, asker):
    """Rather than the best document."""
    _, (note,), _ = corrected(memory, used=["b", "c"])
    edges = {edge for edge in asker.weights() if edge[0] == note.id}
    assert edges == {(note.id, node, "inhibits") for node in "bc"}


def test_a_correction_beside_a_success_blames_nothing(memory, asker):
    """It is an addition."""
    turn = asker.ask(QUESTION).turn
    memory.record(Feedback(turn.id, 1.0, used=["a"], correction=RIGHT))
    assert [edge for edge in asker.weights() if edge[2] == "inhibits"] == []
    assert memory.info()["notes"] == 1


def test_the_same_feedback_makes_one_note(memory):
    """Its id again changes nothing; an empty correction makes none; a huge one is cut."""
    turn = memory.retrieve(QUESTION).turn
    given = Feedback(turn.id, -1.0, correction=RIGHT)
    assert {memory.record(given).status for _ in range(3)} == {"applied"}
    assert memory.info()["notes"] == 1
    turn = memory.retrieve(QUESTION).turn
    memory.record(Feedback(turn.id, -1.0, correction=" \n"))
    assert memory.info()["notes"] == 1
    turn = memory.retrieve(QUESTION).turn
    memory.record(Feedback(turn.id, -1.0, correction="ß" * 30_000))
    assert memory.info()["notes"] == 2


def test_refused_feedback_makes_no_note(memory):
    """No turn, no correction."""
    assert memory.record(Feedback("never", -1.0, correction=RIGHT)).status == "refused"
    assert memory.info()["notes"] == 0


def test_another_process_needs_no_embedder(open_memory, tmp_path, asker_of):
    """The vector is kept with the feedback; who learns from it reads it there."""
    with open_memory(learning=EXTERNAL) as memory:
        asker = asker_of(memory)
        turn = asker.ask(QUESTION).turn
        assert memory.record(Feedback(turn.id, -1.0, correction=RIGHT)).status == "waiting"
        assert StandaloneLearner(memory.store).queue.learn_waiting().applied == 1
        (note,) = memory.store.notes.get_unindexed()
        assert float(note.vector @ memory.embedder.query(RIGHT)) == pytest.approx(1, abs=0.01)
        assert asker.found(RIGHT)[0] == note.id


def test_a_correction_from_a_process_without_embedder_stands_at_its_question(open_memory, asker_of):
    """So it is found where it was asked for."""
    with open_memory(learning=EXTERNAL) as memory:
        asker = asker_of(memory)
        turn = asker.ask(QUESTION).turn
        given = Feedback(turn.id, -1.0, correction=RIGHT)
        assert StandaloneLearner(memory.store).record(given).status == "applied"
        (note,) = memory.store.notes.get_unindexed()
        assert float(note.vector @ memory.embedder.query(QUESTION)) == pytest.approx(1, abs=0.01)
        assert asker.found(QUESTION)[0] == note.id


def test_a_failing_embedder_loses_no_feedback(memory, monkeypatch, caplog):
    """It is kept and learned from; the correction stands at its question."""
    turn = memory.retrieve(QUESTION).turn

    def fail(_texts):
        msg = "no embedder today"
        raise RuntimeError(msg)

    monkeypatch.setattr(memory.embedder, "documents", fail)
    with caplog.at_level(logging.WARNING):
        assert memory.record(Feedback(turn.id, -1.0, correction=RIGHT)).status == "applied"
    assert "no embedder today" in caplog.text
    assert memory.info()["notes"] == 1


def test_a_turn_without_vector_says_so(memory):
    """Where nothing tells the place of a correction, feedback is learned from without it."""
    turn = memory.retrieve(QUESTION, k=3).turn
    memory.store.flush()
    with memory.store._engine.begin() as connection:
        connection.execute(sa.update(turns).values(embedding=None))
    receipt = StandaloneLearner(memory.store).record(Feedback(turn.id, -1.0, correction=RIGHT))
    kept = memory.store.learned.get_feedback(receipt.feedback_id)
    assert (kept.status, memory.info()["notes"]) == ("applied", 0)
    assert "not kept as a note" in kept.note


def test_late_feedback_corrects_the_last_turn(memory, asker):
    """Without a turn id a correction answers the latest question."""
    asker.ask("What is the sky?")
    last = asker.ask(QUESTION).turn
    memory.record(Feedback(None, -1.0, correction=RIGHT))
    (note,) = memory.store.notes.get_unindexed()
    assert asker.facts(note.id).turn == last.id


def test_a_correction_survives_a_crash(tmp_path):
    """What was recorded and not applied is learned from at the next open, with its vector."""
    vectors = DeterministicFakeEmbedding(size=16)
    settings = Settings(learning=EXTERNAL)
    with CrabPath.open(tmp_path, embeddings=vectors, settings=settings) as memory:
        memory.add_documents([Document("Apples are red.", id="a")])
        memory.record(Feedback(memory.retrieve(QUESTION).turn.id, -1.0, correction=RIGHT))
    with CrabPath.open(tmp_path, embeddings=vectors) as memory:
        assert memory.info()["notes"] == 1
        assert memory.retrieve(RIGHT).documents[0].node.content == RIGHT
    store = GraphStore(tmp_path)
    assert store.learned.count_feedback() == {"waiting": 0, "applied": 1, "refused": 0}
    store.close()
