"""Every gate of neurogenesis (the CrabPath v2 specification §2.7), and the note behind them."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.core.graph import Authority, EdgeKind
from crabpath_retrievers.learning.rules.notes import (
    MAX_NOTE_CHARS,
    build_auto_note,
    find_closed_gate,
    make_auto_note_id,
)

SETTINGS = NoteSettings()
VECTOR = np.array([1.0, 0.0], dtype=np.float32)
QUESTION = "Where do the crabs live?"


@pytest.fixture
def asked(turn_of):
    """A turn with a question of this novelty."""

    def make_turn(query=QUESTION, top=0.4, **fields):
        novelty = {"top": top, "known": top >= 0.6, "novel": 0.28 < top < 0.58}
        seeds = (("s1", 0.9), ("s2", 0.0), ("s3", 0.5), ("s4", 0.1))
        return replace(turn_of(seeds=seeds), query=query, **{"novelty": novelty, **fields})

    return make_turn


def build(turn, answer="Under stones.", nearest=-1.0):
    """The note, or None."""
    return build_auto_note(turn, answer, VECTOR, nearest, SETTINGS)


BLOCKING = NoteSettings(blocked_phrases=("", "PASSWÖRD of"))  # an empty phrase blocks nothing


@pytest.mark.parametrize(
    ("fields", "gate", "settings"),
    [
        # Something is near, but not too near.
        *[({"top": top}, "novelty", SETTINGS) for top in (0.0, 0.28, 0.58, 0.6, 1.0)],
        *[({"top": top}, None, SETTINGS) for top in (0.281, 0.579)],
        ({"novelty": {}}, "novelty", SETTINGS),  # an old record may not tell
        # Three words, and mostly letters and digits.
        *[({"query": query}, "short", SETTINGS) for query in ("two words", "", "?!? ... ---")],
        *[({"query": query}, "symbols", SETTINGS) for query in ("a b c !!!!!!!!!", "a b c !!!")],
        *[({"query": q}, None, SETTINGS) for q in ("now three words", "蟹はどこ", "a b c !!")],
        # Phrases in any spelling.
        ({"query": "What is the passwörd of Ann?"}, "blocked", BLOCKING),
        ({"query": "What is the password of Ann?"}, "blocked", BLOCKING),
        ({"query": "What is a password in general?"}, None, BLOCKING),
    ],
)
def test_gates(asked, fields, gate, settings):
    turn = asked(**fields)
    assert find_closed_gate(turn, settings) == gate
    made = build_auto_note(turn, "Under stones.", VECTOR, -1.0, settings)
    assert (made is None) is (gate is not None)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        # A note that says the same keeps another one away; an empty answer is none.
        *[({"nearest": near}, made) for near, made in ((-1.0, 1), (0.91, 1), (0.92, 0), (1, 0))],
        ({"answer": ""}, False),
        ({"answer": "  \n"}, False),
    ],
)
def test_near_duplicates_and_empty_answers(asked, given, made):
    assert (build(asked(), **given) is not None) is bool(made)


def test_the_note_holds_question_and_answer(asked):
    """At the vector of the question, as what it is: a guess, to which the best seeds point."""
    made = build(asked(id="t"), " Under stones. ")
    assert made.node.content == f"{QUESTION}\nUnder stones."
    assert made.node.vector is VECTOR
    assert (made.kind, made.authority, made.turn) == ("auto", Authority.OVERLAY, "t")
    assert made.query == QUESTION
    assert made.query_vector is None  # it is no remembered success
    assert len(build(asked(), "ä" * 99_999).node.content) == MAX_NOTE_CHARS
    # Weakly, from 0.1 to 0.2 by their score.
    edges = {(e.source, e.target, e.kind): e.weight for e in made.edges}
    assert edges == {
        (seed, None, EdgeKind.TAUGHT): pytest.approx(weight)
        for seed, weight in (("s1", 0.19), ("s3", 0.15), ("s4", 0.11))
    }


def test_the_id_is_that_of_the_document(asked):
    """``auto:`` and twelve digits of the SHA-1 of the normalised question."""
    digest = hashlib.sha1(b"where do the crabs live", usedforsecurity=False).hexdigest()[:12]
    assert make_auto_note_id("default", QUESTION) == f"auto:{digest}"
    assert make_auto_note_id("default", "where DO the  crabs live") == f"auto:{digest}"
    assert make_auto_note_id("ann", QUESTION) != f"auto:{digest}"
    assert build(asked()).node.id == f"auto:{digest}"
