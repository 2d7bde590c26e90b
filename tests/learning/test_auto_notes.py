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

    def ask(query=QUESTION, top=0.4, **fields):
        novelty = {"top": top, "known": top >= 0.6, "novel": 0.28 < top < 0.58}
        seeds = (("s1", 0.9), ("s2", 0.0), ("s3", 0.5), ("s4", 0.1))
        return replace(turn_of(seeds=seeds), query=query, novelty=novelty, **fields)

    return ask


def born(turn, answer="Under stones.", nearest=-1.0, settings=SETTINGS):
    """The note, or None."""
    return build_auto_note(turn, answer, VECTOR, nearest, settings)


@pytest.mark.parametrize(
    ("top", "gate"),
    [
        (0.0, "novelty"),
        (0.28, "novelty"),
        (0.281, None),
        (0.579, None),
        (0.58, "novelty"),
        (0.59, "novelty"),
        (0.6, "novelty"),
        (1.0, "novelty"),
    ],
)
def test_the_gate_of_novelty(asked, top, gate):
    turn = asked(top=top)
    assert find_closed_gate(turn, SETTINGS) == gate
    assert (born(turn) is None) is (gate is not None)


def test_a_turn_that_tells_no_novelty(asked):
    assert find_closed_gate(replace(asked(), novelty={}), SETTINGS) == "novelty"


@pytest.mark.parametrize(
    ("query", "gate"),
    [
        ("two words", "short"),
        ("", "short"),
        ("?!? ... ---", "short"),
        ("now three words", None),
        ("蟹はどこ", None),
        ("a b c !!!!!!!!!", "symbols"),
        ("a b c !!", None),
        ("a b c !!!", "symbols"),
    ],
)
def test_the_gates_of_quality(asked, query, gate):
    assert find_closed_gate(asked(query), SETTINGS) == gate


def test_the_blocklist(asked):
    blocked = NoteSettings(blocked_phrases=("", "PASSWÖRD of"))
    assert find_closed_gate(asked("What is the passwörd of Ann?"), blocked) == "blocked"
    assert find_closed_gate(asked("What is the password of Ann?"), blocked) == "blocked"
    assert find_closed_gate(asked("What is a password in general?"), blocked) is None


@pytest.mark.parametrize(
    ("nearest", "made"), [(-1.0, True), (0.91, True), (0.92, False), (1, False)]
)
def test_the_gate_of_near_duplicates(asked, nearest, made):
    assert (born(asked(), nearest=nearest) is not None) is made


@pytest.mark.parametrize("answer", ["", "  \n"])
def test_an_empty_answer_is_none(asked, answer):
    assert born(asked(), answer) is None


def test_the_note_holds_question_and_answer(asked):
    made = born(asked(id="t"), " Under stones. ")
    assert made.node.content == f"{QUESTION}\nUnder stones."
    assert made.node.vector is VECTOR
    assert (made.kind, made.authority, made.turn) == ("auto", Authority.OVERLAY, "t")
    assert made.query == QUESTION
    assert made.query_vector is None  # it is no remembered success
    assert len(born(asked(), "ä" * 99_999).node.content) == MAX_NOTE_CHARS


def test_the_best_seeds_point_at_it_weakly(asked):
    """From 0.1 to 0.2, by their score."""
    edges = {(e.source, e.target, e.kind): e.weight for e in born(asked()).edges}
    assert edges == {
        ("s1", None, EdgeKind.TAUGHT): pytest.approx(0.19),
        ("s3", None, EdgeKind.TAUGHT): pytest.approx(0.15),
        ("s4", None, EdgeKind.TAUGHT): pytest.approx(0.11),
    }


def test_the_id_is_that_of_the_document(asked):
    """``auto:`` and twelve digits of the SHA-1 of the normalised question."""
    digest = hashlib.sha1(b"where do the crabs live", usedforsecurity=False).hexdigest()[:12]
    assert make_auto_note_id("default", QUESTION) == f"auto:{digest}"
    assert make_auto_note_id("default", "where DO the  crabs live") == f"auto:{digest}"
    assert make_auto_note_id("ann", QUESTION) != f"auto:{digest}"
    assert born(asked()).node.id == f"auto:{digest}"
