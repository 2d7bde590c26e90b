"""What a giver said before of the same outcome, and does not say again, still holds."""

import unicodedata
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.core.feedback import MAX_NOTE_CHARS

QUESTION = "Which fruit is red?"


@pytest.fixture
def turn(memory):
    return memory.retrieve(QUESTION, k=3).turn.id


def said(memory, turn):
    """Fields of the only verdict on a turn, as they are stored."""
    ((_, known),) = memory.store.turns.get_verdicts([turn])
    names = ("used", "unused", "relevant", "irrelevant", "answer", "correction")
    found = {name: getattr(known, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.parametrize("same_id", [False, True])
def test_what_is_not_said_again_still_holds(memory, turn, same_id):
    """In whatever order it is said; what is said again replaces what was said of it."""
    given = {"feedback_id": "f"} if same_id else {}
    steps = [
        ({"used": ["a"]}, {"used": ("a",)}),
        ({"correction": "Cherries."}, {"used": ("a",), "correction": "Cherries."}),
        ({"unused": ["b"]}, {"used": ("a",), "unused": ("b",), "correction": "Cherries."}),
        ({"correction": "Plums."}, {"used": ("a",), "unused": ("b",), "correction": "Plums."}),
        ({"unused": ["a"], "answer": "Red."}, {"unused": ("a",), "correction": "Plums."}),
        ({"relevant": ["c"]}, {"unused": ("a",), "relevant": ("c",), "correction": "Plums."}),
        ({"irrelevant": ["c"]}, {"unused": ("a",), "irrelevant": ("c",), "correction": "Plums."}),
    ]
    for number, (fields, expected) in enumerate(steps):
        assert memory.record(turn, outcome=False, **fields, **given).status == "applied"
        answer = {"answer": "Red."} if number > 3 else {}
        assert said(memory, turn) == {**expected, **answer}
        assert memory.record(turn, outcome=False, **given).repeated
        assert memory.record(turn, outcome=False, **fields, **given).repeated
        assert said(memory, turn) == {**expected, **answer}
    assert [note.text for note in memory.notes()] == ["Plums."]
    memory.record(turn, outcome=True, **given)
    assert said(memory, turn) == {}
    assert memory.notes() == []


def test_only_what_stands_is_added_to(memory, turn):
    """Neither what was undone, nor what another person or a model said."""
    memory.record(turn, outcome=False, correction="A model's.", source="self")
    memory.record(turn, outcome=False, correction="Ann's.", user="ann")
    mine = memory.record(turn, outcome=False)
    assert memory.store.learned.get_feedback(mine.feedback_id).feedback.correction is None
    assert [note.text for note in memory.notes()] == ["Ann's."]
    memory.undo(turn_id=turn)
    memory.record(turn, outcome=False, user="ann")
    assert said(memory, turn) == {}


@pytest.mark.both_databases
@pytest.mark.parametrize("apply", ["inline", "external"])
def test_waiting_feedback_is_added_to_as_well(open_memory, location, apply):
    """The vector of the correction comes along."""
    with open_memory(apply=apply) as memory:
        turns = [memory.retrieve(QUESTION, k=3).turn.id for _ in range(2)]
        for given in ({}, {"feedback_id": "f"}):
            about = turns[bool(given)]
            memory.record(about, outcome=False, correction="Cherries are red.", **given)
            memory.record(about, outcome=False, used=["a"], **given)
            memory.record(about, outcome=False, **given)
        memory.learning.learn_waiting()
        for one in turns:
            assert said(memory, one) == {"used": ("a",), "correction": "Cherries are red."}
            ((_, known),) = memory.store.turns.get_verdicts([one])
            assert memory.store.learned.get_feedback(known.feedback_id).vector is not None


@pytest.mark.both_databases
def test_a_change_of_mind_back_is_one(memory):
    """A host that makes ids of runs says the first thing again after another door changed it."""
    turn = memory.retrieve(QUESTION, k=3, run_id="r").turn.id
    handler = CrabPathCallbackHandler(memory)
    (first,) = handler.score(1.0, run_id="r")
    other = memory.record(turn, outcome=False)
    (back,) = handler.score(1.0, run_id="r")
    assert (back.feedback_id, back.status, back.repeated) == (first.feedback_id, "applied", False)
    assert dict(memory.store.turns.get_verdicts([turn]))[turn].outcome == 1.0
    assert memory.undo(other.feedback_id).note == "it was undone before"
    # What was undone stays so.
    memory.undo(first.feedback_id)
    (late,) = handler.score(1.0, run_id="r")
    assert (late.status, late.repeated) == ("undone", True)
    assert memory.store.turns.get_verdicts([turn]) == []


def test_a_repetition_is_one_only_while_the_first_stands(memory, turn):
    memory.record(turn, outcome=True)
    assert memory.record(turn, outcome=True, feedback_id="again").status == "repeated"
    memory.record(turn, outcome=False)
    again = memory.record(turn, outcome=True, feedback_id="again")
    assert (again.status, again.repeated) == ("applied", False)


@pytest.mark.both_databases
def test_undo_of_a_turn_reverts_all_that_was_said_of_it(memory, turn, state_of):
    before = state_of(memory, "default")
    given = [memory.record(turn, outcome=up, user=user) for user, up in (("a", True), ("b", False))]
    done = memory.undo(turn_id=turn)
    assert (done.feedback_id, done.status) == (given[1].feedback_id, "undone")
    assert given[0].feedback_id in done.note
    assert state_of(memory, "default") == before
    with pytest.raises(NotFoundError, match="nothing was learned from turn"):
        memory.undo(turn_id=turn)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"correction": "x" * (MAX_NOTE_CHARS + 1)}, "correction must have at most 20000"),
        ({"correction": 5}, "correction must be a text, not 5"),
        ({"answer": ["x"]}, r"answer must be a text, not \['x'\]"),
        ({"used": ["a"], "unused": ["b", "a"]}, "'a' is in unused and in used: name each"),
        ({"feedback_id": 5.5}, "feedback_id must be a text, not 5.5"),
        ({"session": " "}, "session must be a non-empty text"),
    ],
)
def test_what_cannot_be_meant_is_refused(memory, turn, fields, says):
    with pytest.raises(InvalidInputError, match=says):
        memory.record(turn, outcome=False, **fields)
    assert memory.learning.feedback() == []


def test_a_blank_text_is_none():
    blank = Feedback("t", -1.0, correction=" \n", answer="")
    assert (blank.correction, blank.answer) == (None, None)


def test_names_of_one_document_on_both_sides_are_refused(memory):
    """Also where only the memory knows that they name the same."""
    memory.add_documents([Document("Cherries are red.", id="d", metadata={"source": "book"})])
    turn = memory.retrieve("Cherries are red.", k=4).turn.id
    with pytest.raises(InvalidInputError, match="name each document on one side only"):
        memory.record(turn, outcome=False, relevant=["d"], irrelevant=["book"])
    receipt = memory.record(turn, outcome=False, used=["d"], unused=["book"], strict=False)
    assert (receipt.status, receipt.reason) == ("refused", "both_sides")


@pytest.mark.parametrize("given", [True, 5.5, {"a": 1}, b"x", [object()]])
def test_what_is_no_id_is_refused(memory, given):
    calls = {
        "forget": memory.forget,
        "explain": memory.explain,
        "undo": memory.undo,
        "undo a turn": lambda one: memory.undo(turn_id=one),
        "correct": lambda one: memory.correct("x", turn_id=one),
        "feedback": lambda one: memory.learning.feedback(turn_id=one),
        "restore": memory.namespaces.restore,
        "turns": lambda one: memory.turns(before=one),
        "documents": lambda one: memory.documents(source=one),
        "read": memory.get_by_ids,
        "record": lambda one: memory.record(one, 1.0),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidInputError) as caught:
            call(given)
        assert "must be" in str(caught.value) or "has no document" in str(caught.value), name


@pytest.mark.both_databases
@pytest.mark.parametrize("session", ["x" * 201, 7, "é", "e\u0301"])
def test_a_conversation_has_one_name(memory, session):
    """At retrieval and at feedback, through every door."""
    asked = memory.retrieve(QUESTION, session=session).turn
    alike = {7: "7", "é": "e\u0301", "e\u0301": "é"}.get(session, session)
    assert memory.record(None, outcome=True, session=alike).turn_id == asked.id
    assert memory.record(asked.id, outcome=False, session=alike).status == "applied"
    retriever = memory.as_retriever()
    for part in ("configurable", "metadata"):
        retriever.invoke(QUESTION, {part: {"session_id": session}})
        last = memory.turns()[0].id
        assert memory.store.turns.get(last).session == asked.session
        assert memory.record(None, outcome=True, session=session).turn_id == last


@pytest.mark.both_databases
def test_names_are_the_same_however_their_accents_are_written(memory):
    one, other = (unicodedata.normalize(form, "zoë") for form in ("NFC", "NFD"))
    turn = memory.retrieve(QUESTION, namespace=one).turn.id
    memory.record(turn, outcome=True, namespace=other, user=other)
    assert memory.record(turn, outcome=True, user=one).repeated
    assert {found.user for found in memory.learning.feedback(user=one, namespace=other)} == {one}
    assert [found.name for found in memory.namespaces.records()] == [one]
    memory.teach("Cherries are red.", namespace=other)
    assert len(memory.notes(namespace=one)) == 1
    memory.namespaces.freeze(other)
    assert memory.store.learned.get_state(one).frozen
    assert memory.forget(namespace=other).feedback == 2


def test_what_is_refused_for_a_forgotten_turn_is_written_nowhere(open_memory, location):
    """Not even in the log of the database, which holds what was deleted until it is closed."""
    with open_memory() as memory:
        turn = memory.retrieve(QUESTION, namespace="ann").turn.id
        memory.retrieve(QUESTION)
        memory.forget(namespace="ann")
        old = "00" + turn[2:]  # its time is that of long ago
        for name in (None, "ann"):
            given = Feedback(old, -1.0, correction="A secret.", answer="Hush.", namespace=name)
            receipt = memory.record(given)
            assert (receipt.status, receipt.reason) == ("refused", "unknown_turn")
        assert memory.learning.feedback() == []
        for file in Path(location).rglob("*"):
            if file.is_file():
                assert b"A secret." not in file.read_bytes(), file
                assert b"Hush." not in file.read_bytes(), file
