"""Neurogenesis (the CrabPath v2 specification §2.7): its gates, the note, and its probation."""

import hashlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import EdgeKind, Feedback
from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.core.records import Authority
from crabpath_retrievers.learning.notes import (
    MAX_NOTE_CHARS,
    build_auto_note,
    find_closed_gate,
    make_auto_note_id,
)

SETTINGS = NoteSettings()
VECTOR = np.array([1.0, 0.0], dtype=np.float32)
QUESTION, ANSWER = "Where do the crabs live?", "Under stones."
NOTE = make_auto_note_id("default", QUESTION)


@pytest.fixture
def asked(turn_of):
    """A turn with a question of this novelty."""

    def make_turn(query=QUESTION, top=0.4, **fields):
        novelty = {"top": top, "known": top >= 0.6, "novel": 0.28 < top < 0.58}
        seeds = (("s1", 0.9), ("s2", 0.0), ("s3", 0.5), ("s4", 0.1))
        return replace(turn_of(seeds=seeds), query=query, **{"novelty": novelty, **fields})

    return make_turn


def build(turn, answer=ANSWER, nearest=-1.0, settings=SETTINGS):
    """The note, or None."""
    return build_auto_note(turn, answer, VECTOR, nearest, settings)


BLOCKING = NoteSettings(blocked_phrases=("", "PASSWÖRD of"))  # an empty phrase blocks nothing


@pytest.mark.parametrize(
    ("fields", "gate", "settings"),
    [
        # Something is near, but not too near.
        *[({"top": top}, "novelty", SETTINGS) for top in (0.0, 0.28, 0.58, 1.0)],
        *[({"top": top}, None, SETTINGS) for top in (0.281, 0.579)],
        ({"novelty": {}}, "novelty", SETTINGS),  # an old record may not tell
        # Three words, and mostly letters and digits.
        *[
            ({"query": query}, "short", SETTINGS)
            for query in ("two words", "蟹はどこ", "", "?!? ... ---")
        ],
        ({"query": "a b c !!!"}, "symbols", SETTINGS),
        *[
            ({"query": q}, None, SETTINGS)
            for q in ("now three words", "蟹はどこにいますか", "a b c !!")
        ],
        # Phrases in any spelling.
        ({"query": "What is the password of Ann?"}, "blocked", BLOCKING),
        ({"query": "What is a password in general?"}, None, BLOCKING),
    ],
)
def test_gates(asked, fields, gate, settings):
    turn = asked(**fields)
    assert find_closed_gate(turn, settings) == gate
    assert (build(turn, settings=settings) is None) is (gate is not None)


def test_near_duplicates_and_empty_answers_make_no_note(asked):
    assert build(asked(), nearest=0.91)
    assert build(asked(), nearest=0.92) is None
    assert build(asked(), "  \n") is None


def test_the_note_holds_question_and_answer(asked):
    """At the vector of the question, as what it is: a guess, to which the best seeds point."""
    made = build(asked(id="t"), " Under stones. ")
    assert made.node.content == f"{QUESTION}\nUnder stones."
    assert made.node.vector is VECTOR
    assert (made.kind, made.authority, made.turn) == ("auto", Authority.OVERLAY, "t")
    assert (made.query, made.query_vector) == (QUESTION, None)  # it is no remembered success
    most = MAX_NOTE_CHARS - len(QUESTION) - 1
    assert build(asked(), "ä" * most)
    assert build(asked(), "ä" * (most + 1)) is None  # half an answer is none
    # Weakly, from 0.1 to 0.2 by their score.
    edges = {(e.source, e.target, e.kind): e.weight for e in made.edges}
    assert edges == {
        (seed, None, EdgeKind.TAUGHT): pytest.approx(weight)
        for seed, weight in (("s1", 0.19), ("s3", 0.15), ("s4", 0.11))
    }
    # Its id: ``auto:`` and twelve digits of the SHA-1 of the normalised question.
    digest = hashlib.sha1(b"where do the crabs live", usedforsecurity=False).hexdigest()[:12]
    assert made.node.id == NOTE == f"auto:{digest}"
    assert make_auto_note_id("ann", QUESTION) != NOTE


@cache
def find_novel_vector():
    """A query vector that is near a document, but not too near."""
    texts = ["Apples are red fruit.", "The sky is blue.", "Grass is green."]
    stored = np.array(DeterministicFakeEmbedding(size=16).embed_documents(texts))
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    while True:
        guess = rng.normal(size=16)
        guess /= np.linalg.norm(guess)
        if 0.3 < (stored @ guess).max() < 0.56:
            return guess.astype(np.float32)


def ask(memory):
    """An answer at a novel place; the clock has advanced behind it."""
    answer = memory.retrieve(QUESTION, k=9, vector=find_novel_vector().tolist())
    memory.store.flush()
    return answer


def tell_answer(memory, answer=ANSWER, outcome=1.0, **fields):
    """Ask at a novel place, then say what the answer was."""
    turn = ask(memory).turn
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
    with open_memory(neurogenesis=True, note=NoteSettings(probation_turns=3)) as memory:
        yield memory


@pytest.mark.both_databases
def test_a_novel_question_becomes_a_note(young, host_of):
    """Question and answer, found for the question; another question like it makes none."""
    turn = tell_answer(young, used=[])
    again = ask(young)
    first = again.documents[0].node
    assert (first.id, first.content) == (NOTE, f"{QUESTION}\n{ANSWER}")
    incoming = {edge[0] for edge in host_of(young).weights() if edge[1:] == (NOTE, "taught")}
    assert incoming == {seed.node for seed in turn.seeds}
    novelty = {"top": 0.4, "known": False, "novel": True}
    asked = replace(again.turn, id="again", query=f"{QUESTION} Really", novelty=novelty)
    young.store.record(asked, find_novel_vector())
    assert young.record(Feedback("again", 1.0, answer=ANSWER)).status == "applied"
    assert young.info()["notes"] == 1
    young.undo(turn_id=turn.id)
    assert (young.info()["notes"], host_of(young).facts(NOTE)) == (0, None)


def test_what_makes_no_note(young):
    """Failures, missing answers, corrections and known questions."""
    for fields in ({"outcome": -1.0}, {"outcome": 0.0}, {"answer": None}, {"correction": "No."}):
        tell_answer(young, **fields)
    turn = young.retrieve("The sky is blue.", k=9).turn  # the best hit is nearer than 0.58
    young.record(Feedback(turn.id, 1.0, answer=ANSWER))
    assert young.store.notes.get_facts([NOTE]) == []
    assert young.info()["notes"] == 1  # that of the correction


def test_probation_ends_without_use(young, host_of, index_vectors):
    """Three turns of its namespace after its birth nothing finds it, until it is born anew."""
    tell_answer(young)
    index_vectors(young)
    for _ in range(9):
        young.retrieve("Something else.", namespace="ann")
    assert is_found(young, 5) == [True, True, True, False, False]
    tell_answer(young)
    assert is_found(young) == [True]
    assert young.info()["notes"] == 1
    assert host_of(young).facts(NOTE).uses == 0


def test_a_use_begins_a_new_term_and_two_successes_end_probation(young, host_of):
    """Failures and the same feedback again are no uses; the episode of a use does not recall it."""
    tell_answer(young)
    use_note(young, -1.0)
    turn = ask(young).turn.id
    for _ in range(2):
        young.record(Feedback(turn, 1.0, used=[NOTE], feedback_id="same"))
    assert host_of(young).facts(NOTE).uses == 1
    assert is_found(young, 4) == [True, True, True, False]
    tell_answer(young)
    use_note(young)
    assert host_of(young).facts(NOTE).uses == 2
    assert all(is_found(young, 8))


def test_what_is_taught_is_on_no_probation(young, host_of):
    note = young.teach("A rule.", id="auto:mine")
    for _ in range(9):
        assert note in host_of(young).found("A rule.")
