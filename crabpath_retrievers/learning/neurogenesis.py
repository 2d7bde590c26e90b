"""Neurogenesis: the answer to a novel question becomes a note on probation.

After the auto-generated nodes of [CrabPath] (docs/bibliography.md).
"""

import hashlib

from crabpath_retrievers.changes.notes import KeepNote, NoteEdge
from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.graph import EdgeKind, Vector
from crabpath_retrievers.learning.notes import MAX_NOTE_CHARS, NoteContent, NoteQuestion, build_note
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.text import normalise, normalise_name, tokenise
from crabpath_retrievers.trajectory import Turn

_MAX_SEEDS = 3  # seeds that get an edge to a new note
_MIN_SEED_WEIGHT, _SEED_WEIGHT_RANGE = 0.1, 0.1  # an edge from a seed weighs 0.1 to 0.2


def make_auto_note_id(namespace: str, query: str) -> str:
    """Return ``auto:`` and the first 12 hexadecimal digits of the normalised question's SHA-1.

    Namespaces other than ``default`` add their name: ids are unique in the whole store.
    """
    key = normalise_name(query)
    identity = key if namespace == DEFAULT_NAMESPACE else f"{namespace}\n{key}"
    return f"auto:{hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:12]}"


def find_closed_gate(turn: Turn, settings: NoteSettings) -> str | None:
    """Return the gate that keeps a question from becoming a note; None if all are open.

    ``novelty``: a similar text exists (cosine of the best hit at least 0.58), or nothing is close
    at all (at most 0.28), so that the question is off topic. ``short``, ``symbols``, ``blocked``:
    see :class:`~crabpath_retrievers.config.NoteSettings`.
    """
    if not turn.novelty.get("novel"):
        return "novelty"
    if len(tokenise(turn.query)) < settings.min_words:
        return "short"
    letters = [character for character in turn.query if not character.isspace()]
    if sum(map(str.isalnum, letters)) < settings.min_alphanumeric_share * len(letters):
        return "symbols"
    text = normalise(turn.query)
    return "blocked" if any(normalise(p) in text for p in settings.blocked_phrases if p) else None


def build_auto_note(
    turn: Turn,
    answer: str,
    vector: Vector,
    nearest: float,
    settings: NoteSettings,
    feedback: str | None = None,
) -> KeepNote | None:
    """Build the note for a successful answer to a novel question; None if a gate is closed.

    The best seeds of the turn get weak edges to it. It has the vector of its question.

    Args:
        turn: The turn with its query and novelty.
        answer: The chain's answer; an empty one makes no note.
        vector: Unit query vector, shape ``[d]``.
        nearest: Cosine of the nearest existing note; -1 without any.
        settings: The gates.
        feedback: Id of the feedback with the answer.
    """
    stripped = answer.strip()
    if not stripped or nearest >= settings.duplicate_similarity or find_closed_gate(turn, settings):
        return None
    content = NoteContent(
        f"{turn.query}\n{stripped}"[:MAX_NOTE_CHARS],
        id=make_auto_note_id(turn.namespace, turn.query),
    )
    best = sorted(turn.seeds, key=lambda seed: -seed.score)[:_MAX_SEEDS]
    incoming = [
        NoteEdge(
            seed.node,
            None,
            EdgeKind.TAUGHT,
            _MIN_SEED_WEIGHT + _SEED_WEIGHT_RANGE * max(0.0, min(1.0, seed.score)),
        )
        for seed in best
    ]
    question = NoteQuestion(turn.query, turn=turn.id)
    return build_note(
        turn.namespace, "auto", content, vector, asked=question, beside=incoming, feedback=feedback
    )
