"""Neurogenesis in a memory: off by default; born, on probation, proven or gone."""

from dataclasses import replace

import numpy as np
import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.config import LearningSettings, NoteSettings
from crabpath_retrievers.learning.rules.notes import make_auto_note_id

QUESTION = "Where do the crabs live?"
ANSWER = "Under stones."
NOTE = make_auto_note_id("default", QUESTION)
ON = {"learning": LearningSettings(neurogenesis=True)}


def novel(memory):
    """A query vector that is near a document, but not too near."""
    stored = memory.store.catalog.vectors(["a", "b", "c"])
    vectors = np.array([v.astype(np.float64) for v in stored.values()])
    rng = np.random.default_rng(0)
    for _ in range(100_000):
        guess = rng.normal(size=16)
        guess /= np.linalg.norm(guess)
        if 0.3 < (vectors @ guess).max() < 0.56:
            return guess.tolist()
    raise AssertionError


def answered(memory, answer=ANSWER, outcome=1.0, namespace="default", query=QUESTION, **fields):
    """Ask at a novel place, then say what the answer was."""
    turn = memory.retrieve(query, k=9, namespace=namespace, vector=novel(memory)).turn
    memory.record(Feedback(turn.id, outcome, answer=answer, **fields))
    return turn


def test_it_is_off_by_default(memory):
    """An answer of a chain is no knowledge yet."""
    answered(memory)
    assert memory.info()["notes"] == 0


@pytest.fixture
def young(open_memory):
    """A memory with neurogenesis and a short probation."""
    with open_memory(**ON, note=NoteSettings(probation_turns=3)) as memory:
        yield memory


def test_a_novel_question_becomes_a_note(young, asker_of):
    """Question and answer, found for the question; the seeds of the turn point at it."""
    turn = answered(young, used=[])
    assert turn.novelty["novel"]
    again = young.retrieve(QUESTION, k=9, vector=novel(young))
    assert again.documents[0].node.id == NOTE
    assert again.documents[0].node.content == f"{QUESTION}\n{ANSWER}"
    edges = asker_of(young).weights()
    incoming = {source for source, target, kind in edges if (target, kind) == (NOTE, "taught")}
    assert incoming == {seed.node for seed in turn.seeds}
    assert all(0.1 <= weight <= 0.2 for (_, t, _), weight in edges.items() if t == NOTE)


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": -1.0},
        {"outcome": 0.0},
        {"answer": " "},
        {"answer": None},
        {"query": "crabs?"},
        {"correction": "In the sea."},
    ],
)
def test_what_is_not_born(young, fields):
    """Failures, missing answers, closed gates; and a correction is a note of its own."""
    answered(young, **fields)
    assert young.store.notes.get_facts([NOTE, make_auto_note_id("default", "crabs?")]) == []


def test_a_known_question_is_not_born(young):
    """Its best hit is nearer than 0.58."""
    turn = young.retrieve("Apples are red fruit.", k=9).turn
    young.record(Feedback(turn.id, 1.0, answer=ANSWER))
    assert young.info()["notes"] == 0


def test_a_note_that_says_the_same_keeps_it_away(young):
    """Here one at the very same place."""
    answered(young)
    turn = young.retrieve(f"{QUESTION} Really", k=9, vector=novel(young)).turn
    novelty = {"top": 0.4, "known": False, "novel": True}
    young.store.record(replace(turn, id="again", novelty=novelty), np.array(novel(young), "f4"))
    assert young.record(Feedback("again", 1.0, answer=ANSWER)).status == "applied"
    assert young.info()["notes"] == 1


def found(memory, namespace="default"):
    """Whether the question still finds the note; takes a turn."""
    answer = memory.retrieve(QUESTION, k=9, namespace=namespace, vector=novel(memory))
    memory.store.flush()  # the clock advances behind the answer
    return NOTE in {item.node.id for item in answer.documents}


@pytest.mark.parametrize("indexed", [False, True])
def test_probation_ends_without_use(young, indexed):
    """Three turns after its birth nothing finds it, not even the seeds that point at it."""
    answered(young)
    if indexed:
        young._services.notes.catch_up()
    assert [found(young) for _ in range(5)] == [True, True, True, False, False]


def test_turns_of_others_do_not_count(young):
    """Each namespace has its own clock."""
    answered(young)
    for _ in range(9):
        young.retrieve("Something else.", namespace="ann")
    young.store.flush()
    assert found(young)


def use(memory, outcome=1.0):
    """Ask, and say that the note was used."""
    turn = memory.retrieve(QUESTION, k=9, vector=novel(memory)).turn
    memory.record(Feedback(turn.id, outcome, used=[NOTE]))


def test_a_use_begins_a_new_term(young):
    """Once used, it has three turns more."""
    answered(young)
    assert [found(young) for _ in range(2)] == [True, True]
    use(young)
    assert [found(young) for _ in range(4)] == [True, True, True, False]


def test_two_successes_end_probation(young, asker_of):
    """It is found for ever after."""
    answered(young)
    use(young)
    use(young)
    assert asker_of(young).facts(NOTE).uses == 2
    assert all(found(young) for _ in range(8))


def test_failures_are_no_uses(young, asker_of):
    """Nor is the same feedback twice."""
    answered(young)
    use(young, -1.0)
    turn = young.retrieve(QUESTION, k=9, vector=novel(young)).turn
    for _ in range(2):
        young.record(Feedback(turn.id, 1.0, used=[NOTE], feedback_id="same"))
    assert asker_of(young).facts(NOTE).uses == 1


def test_an_episode_does_not_recall_what_is_over(young):
    """Its success was remembered, but its probation has ended."""
    answered(young)
    use(young)
    assert [found(young) for _ in range(5)][3:] == [False, False]


def test_asked_again_after_its_time_it_begins_anew(young, asker_of):
    """The same question, novel again, with a success: one note, a new term."""
    answered(young)
    assert [found(young) for _ in range(4)][-1] is False
    answered(young)
    assert found(young)
    assert young.info()["notes"] == 1
    assert asker_of(young).facts(NOTE).uses == 0


def test_two_namespaces_have_their_own(young):
    """The same question makes a note in each."""
    answered(young)
    answered(young, namespace="ann")
    assert young.info()["notes"] == 2
    facts = young.store.notes.get_facts([NOTE, make_auto_note_id("ann", QUESTION)])
    assert {fact.namespace for fact in facts} == {"default", "ann"}


def test_what_is_taught_is_on_no_probation(young, asker_of):
    """Whatever its id."""
    note = young.teach("A rule.", id="auto:mine")
    for _ in range(9):
        assert note in asker_of(young).found("A rule.")
