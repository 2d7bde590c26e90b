"""Corrections that are said again, taken back, and said by several people."""

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import InvalidInputError

QUESTION = "Which fruit is red?"
FIRST, SECOND = "Cherries are red.", "Plums are red."


def correct_by_feedback(memory, text, user="ann"):
    turn = memory.retrieve(QUESTION, k=3).turn.id
    memory.record(turn, outcome=False, correction=text, user=user)


def correct_directly(memory, text, user=None):
    memory.correct(text, turn_id=memory.retrieve(QUESTION, k=3).turn.id)


def scores(memory, question=QUESTION):
    found = memory.retrieve(question, k=10, record=False).documents
    return {item.node.content: pytest.approx(item.returned.log_odds, abs=1e-9) for item in found}


WAYS = [correct_by_feedback, correct_directly]


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("again", WAYS)
@pytest.mark.parametrize("other", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_the_correction_that_was_said_last_counts(memory, host, first, other, again):
    for correct, text in ((first, FIRST), (other, SECOND), (again, FIRST), (other, SECOND)):
        correct(memory, text, "bob")
        found = [item.node.content for item in host.answer(k=3).documents]
        assert found[0].endswith(text)
        assert [said for said in (FIRST, SECOND) if said in "".join(found)] == [text]
    assert {note.text for note in memory.notes()} == {FIRST, SECOND}


@pytest.mark.both_databases
def test_corrections_of_turns_that_were_asked_before_count_in_the_order_they_are_said(memory, host):
    turns = [memory.retrieve(QUESTION, k=3).turn.id for _ in range(3)]
    for turn, text in zip(turns, (FIRST, SECOND, FIRST), strict=True):
        memory.record(turn, outcome=False, correction=text, feedback_id=turn)
    assert host.answer(k=3).documents[0].node.content.endswith(FIRST)
    memory.undo(turns[2])
    assert host.answer(k=3).documents[0].node.content.endswith(SECOND)


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("undone", [(3,), (1, 3), (3, 2), (2, 1, 3), (0, 3, 2, 1)])
def test_undo_of_a_correction_that_others_gave_is_exact(memory, undone):
    """Also what it is about: the question of the last that stands."""
    questions = [QUESTION, "What is the sky?", "How green is grass?", "What else?"]
    asked = [QUESTION, "What is the sky?", "Is anything blue?"]
    turns = [memory.retrieve(text, k=3).turn.id for text in questions]

    def give(places):
        for place in places:
            text = SECOND if place == 2 else FIRST
            memory.record(turns[place], outcome=False, correction=text, feedback_id=str(place))

    give([place for place in range(4) if place not in undone])
    wanted = [scores(memory, text) for text in asked]
    notes = {note.text: (note.query, note.feedback_id) for note in memory.notes()}
    memory.forget(namespace="default")
    turns = [memory.retrieve(text, k=3).turn.id for text in questions]
    give(range(4))
    for place in undone:
        memory.undo(str(place))
    assert [scores(memory, text) for text in asked] == wanted
    assert {note.text: (note.query, note.feedback_id) for note in memory.notes()} == notes


@pytest.mark.both_databases
def test_a_correction_that_is_forgotten_leaves_nothing(memory, host, state_of, assert_same):
    answer = host.answer(k=3)
    wrong = [answer.documents[-1].node.id]
    before, found = state_of(memory, "default"), scores(memory)
    for _ in range(3):
        note = memory.correct(FIRST, turn_id=answer.turn.id, wrong=wrong)
        assert scores(memory) != found
        memory.forget([note])
    assert scores(memory) == found
    assert_same(state_of(memory, "default"), before)


@pytest.mark.parametrize("directly_first", [False, True])
def test_what_somebody_says_directly_survives_the_undo_of_feedback(memory, directly_first):
    turn = memory.retrieve(QUESTION, k=3).turn.id
    ways = [
        lambda: memory.record(turn, outcome=False, correction=FIRST, user="eve"),
        lambda: memory.correct(FIRST, turn_id=turn),
    ]
    for say in reversed(ways) if directly_first else ways:
        say()
    memory.learning.undo_all(user="eve")
    assert [(note.text, note.feedback_id) for note in memory.notes()] == [(FIRST, None)]


def test_no_document_takes_the_place_of_a_note(memory, host):
    """Ids of notes are refused for documents; where both chose one id, each is forgotten alone."""
    note = memory.teach(FIRST, query=QUESTION)
    with pytest.raises(InvalidInputError, match="only notes have: give the document another one"):
        memory.add_documents([Document("Mine.", id=note)])
    assert FIRST in [item.node.content for item in host.answer(k=3).documents]
    memory.teach(SECOND, id="ports")
    memory.add_documents([Document("Ports are open.", id="ports")])
    assert memory.forget(["ports"]).notes == 0
    assert SECOND in [one.text for one in memory.notes()]
