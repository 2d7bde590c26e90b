"""Neurogenesis: notes made of novel questions; off by default, on probation, proven or gone."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import Feedback
from crabpath_retrievers.config import LearningSettings, NoteSettings
from crabpath_retrievers.learning.rules.notes import make_auto_note_id

TEXTS = ["Apples are red fruit.", "The sky is blue.", "Grass is green."]
QUESTION = "Where do the crabs live?"
ANSWER = "Under stones."
NOTE = make_auto_note_id("default", QUESTION)


@cache
def find_novel_vector():
    """A query vector that is near a document, but not too near."""
    stored = np.array(DeterministicFakeEmbedding(size=16).embed_documents(TEXTS))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    while True:
        guess = rng.normal(size=16)
        guess /= np.linalg.norm(guess)
        if 0.3 < (stored @ guess).max() < 0.56:
            return guess.tolist()


def ask(memory, query=QUESTION, namespace="default"):
    """An answer at a novel place; the clock has advanced behind it."""
    answer = memory.retrieve(query, k=9, namespace=namespace, vector=find_novel_vector())
    memory.store.flush()
    return answer


def tell_answer(memory, answer=ANSWER, outcome=1.0, namespace="default", query=QUESTION, **fields):
    """Ask at a novel place, then say what the answer was."""
    turn = ask(memory, query, namespace).turn
    memory.record(Feedback(turn.id, outcome, answer=answer, **fields))
    return turn


def use_note(memory, outcome=1.0):
    """Ask, and say that the note was used."""
    memory.record(Feedback(ask(memory).turn.id, outcome, used=[NOTE]))


def is_found(memory, times=1):
    """Whether the question still finds the note, asked several times; each takes a turn."""
    return [NOTE in {item.node.id for item in ask(memory).documents} for _ in range(times)]


def test_it_is_off_by_default(memory):
    tell_answer(memory)
    assert memory.info()["notes"] == 0


@pytest.fixture
def young(open_memory):
    """A memory with neurogenesis and a short probation."""
    settings = {"learning": LearningSettings(neurogenesis=True)}
    with open_memory(**settings, note=NoteSettings(probation_turns=3)) as memory:
        yield memory


@pytest.mark.both_databases
def test_a_novel_question_becomes_a_note(young, asker_of):
    """Question and answer, found for the question; the seeds of the turn point at it."""
    turn = tell_answer(young, used=[])
    assert turn.novelty["novel"]
    first = ask(young).documents[0].node
    assert (first.id, first.content) == (NOTE, f"{QUESTION}\n{ANSWER}")
    incoming = {
        source: weight
        for (source, target, kind), weight in asker_of(young).weights().items()
        if (target, kind) == (NOTE, "taught")
    }
    assert incoming.keys() == {seed.node for seed in turn.seeds}
    assert all(0.1 <= weight <= 0.2 for weight in incoming.values())


def test_what_makes_no_note(young):
    """Failures, missing answers, corrections and known questions."""
    for fields in (
        {"outcome": -1.0},
        {"outcome": 0.0},
        {"answer": None},
        {"correction": "In the sea."},
    ):
        tell_answer(young, **fields)
    assert young.store.notes.get_facts([NOTE]) == []
    before = young.info()["notes"]
    turn = young.retrieve(TEXTS[0], k=9).turn  # the best hit is nearer than 0.58
    young.record(Feedback(turn.id, 1.0, answer=ANSWER))
    assert young.info()["notes"] == before


def test_a_note_that_says_the_same_keeps_another_away(young):
    tell_answer(young)
    turn = ask(young, f"{QUESTION} Really").turn
    novelty, vector = {"top": 0.4, "known": False, "novel": True}, find_novel_vector()
    young.store.record(replace(turn, id="again", novelty=novelty), np.array(vector, "f4"))
    assert young.record(Feedback("again", 1.0, answer=ANSWER)).status == "applied"
    assert young.info()["notes"] == 1


@pytest.mark.parametrize("indexed", [False, True])
def test_probation_ends_without_use(young, asker_of, index_vectors, indexed):
    """Three turns of its namespace after its birth nothing finds it, until it is born anew."""
    tell_answer(young)
    if indexed:
        index_vectors(young)
    for _ in range(9):
        young.retrieve("Something else.", namespace="ann")
    assert is_found(young, 5) == [True, True, True, False, False]
    tell_answer(young)
    assert is_found(young) == [True]
    assert young.info()["notes"] == 1
    assert asker_of(young).facts(NOTE).uses == 0


def test_a_use_begins_a_new_term(young, asker_of):
    """Failures and the same feedback again are no uses; the episode of a use does not recall it."""
    tell_answer(young)
    use_note(young, -1.0)
    turn = ask(young).turn.id
    for _ in range(2):
        young.record(Feedback(turn, 1.0, used=[NOTE], feedback_id="same"))
    assert asker_of(young).facts(NOTE).uses == 1
    assert is_found(young, 4) == [True, True, True, False]


def test_two_successes_end_probation(young, asker_of):
    tell_answer(young)
    use_note(young)
    use_note(young)
    assert asker_of(young).facts(NOTE).uses == 2
    assert all(is_found(young, 8))


def test_what_is_taught_is_on_no_probation(young, asker_of):
    note = young.teach("A rule.", id="auto:mine")
    for _ in range(9):
        assert note in asker_of(young).found("A rule.")
