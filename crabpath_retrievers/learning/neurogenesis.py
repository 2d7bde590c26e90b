"""Neurogenesis: the answer to a novel question becomes a note on probation (document 001 §2.7)."""

import hashlib

from crabpath_retrievers.changes.notes import KeepNote, NoteEdge
from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.graph import EdgeKind, Vector
from crabpath_retrievers.learning.notes import LONGEST, Asked, Said, note
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.text import name_key, normalise, tokens
from crabpath_retrievers.trajectory import Turn

_SEEDS = 3  # that point at a new note
_LEAST, _RANGE = 0.1, 0.1  # weight of such a pointer, from 0.1 to 0.2 with the score of the seed


def auto_id(namespace: str, query: str) -> str:
    """``auto:`` and twelve digits of the normalised question's SHA-1, as document 001 has it.

    Other namespaces than ``default`` mix in their name: ids are unique in the whole store.
    """
    key = name_key(query)
    named = key if namespace == DEFAULT_NAMESPACE else f"{namespace}\n{key}"
    return f"auto:{hashlib.sha1(named.encode(), usedforsecurity=False).hexdigest()[:12]}"


def closed_gate(turn: Turn, settings: NoteSettings) -> str | None:
    """Which gate keeps a question from becoming a note; None when all are open.

    ``novelty``: something like it is known (cosine of the best hit from 0.58), or nothing is near
    it at all (up to 0.28), so that it belongs elsewhere. ``short``, ``symbols``, ``blocked``: see
    :class:`~crabpath_retrievers.config.NoteSettings`.
    """
    if not turn.novelty.get("novel"):
        return "novelty"
    if len(tokens(turn.query)) < settings.min_words:
        return "short"
    letters = [character for character in turn.query if not character.isspace()]
    if sum(map(str.isalnum, letters)) < settings.min_alphanumeric_share * len(letters):
        return "symbols"
    text = normalise(turn.query)
    return "blocked" if any(normalise(p) in text for p in settings.blocked_phrases if p) else None


def auto_note(
    turn: Turn,
    answer: str,
    vector: Vector,
    nearest: float,
    settings: NoteSettings,
    feedback: str | None = None,
) -> KeepNote | None:
    """The note that a successful answer to a novel question becomes; None where a gate is closed.

    The best seeds of the turn point at it, weakly. It stands at the vector of its question.

    Args:
        turn: What was asked, and how novel that was.
        answer: What the chain answered; nothing follows from an empty one.
        vector: Unit query vector, shape ``[d]``.
        nearest: Cosine of the nearest note that there is; -1 without any.
        settings: The gates.
        feedback: Id of the feedback that says so.
    """
    told = answer.strip()
    if not told or nearest >= settings.duplicate_similarity or closed_gate(turn, settings):
        return None
    said = Said(f"{turn.query}\n{told}"[:LONGEST], id=auto_id(turn.namespace, turn.query))
    best = sorted(turn.seeds, key=lambda seed: -seed.score)[:_SEEDS]
    incoming = [
        NoteEdge(seed.node, None, EdgeKind.TAUGHT, _LEAST + _RANGE * max(0.0, min(1.0, seed.score)))
        for seed in best
    ]
    asked = Asked(turn.query, turn=turn.id)
    return note(
        turn.namespace, "auto", said, vector, asked=asked, beside=incoming, feedback=feedback
    )
