"""Notes as change records: teachings, corrections and directives.

After the teaching of [CrabPath] (docs/bibliography.md).

Neurogenesis: the answer to a novel question becomes a note on probation.

After the auto-generated nodes of [CrabPath] (docs/bibliography.md).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.core.changes.notes import KeepNote, NoteEdge, NoteKind
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, MAX_NOTE_CHARS
from crabpath_retrievers.core.records import Authority, EdgeKind, Node, Turn, Vector
from crabpath_retrievers.core.text import count_words, normalise, normalise_name
from crabpath_retrievers.learning.rules.inhibition import (
    MIN_INHIBITION,
    compute_inhibition_step,
    find_entry,
)

RELATED_WEIGHT = 0.6
"""Weight of an edge from a note to a related node: that of a mention."""

_TAUGHT, _INHIBITS = EdgeKind.TAUGHT, EdgeKind.INHIBITS


@dataclass(frozen=True, slots=True)
class NoteQuestion:
    """The question that a note answers: text, unit vector of shape ``[d]``, and turn id if any."""

    query: str
    vector: Vector | None = None
    turn: str | None = None


@dataclass(frozen=True, slots=True)
class NoteContent:
    """Content of a note.

    Attributes:
        text: The text, 1 to 20,000 characters.
        title: Its title; may be empty.
        related: Ids of nodes to which it gets an edge.
        wrong: Ids of nodes to which it gets an inhibitory edge.
        id: Its id; None derives one from namespace and text.
        metadata: Plain values returned with it.
    """

    text: str
    title: str = ""
    related: Sequence[str] = ()
    wrong: Sequence[str] = ()
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def make_note_id(kind: NoteKind, namespace: str, text: str) -> str:
    """Return the id of a note without one: the same text in one namespace is the same note."""
    return f"{kind}:{_hash_texts(namespace, text)[:24]}"


def hash_note(kind: NoteKind, content: NoteContent, authority: Authority, query: str | None) -> str:
    """Return a fingerprint of a note's content; an equal one means that nothing changed."""
    targets = (*content.related, "", *content.wrong)
    metadata = ("", json.dumps(content.metadata, sort_keys=True)) if content.metadata else ()
    return _hash_texts(
        kind, content.text, content.title, authority.name, query or "", *targets, *metadata
    )


def build_note(
    namespace: str,
    kind: NoteKind,
    content: NoteContent,
    vector: Vector,
    *,
    authority: Authority = Authority.OVERLAY,
    asked: NoteQuestion | None = None,
    beside: Iterable[NoteEdge] = (),
    feedback: str | None = None,
) -> KeepNote:
    """Build the change that stores a note.

    Args:
        namespace: The namespace of the note.
        kind: Origin of the note.
        content: Its content.
        vector: Its unit vector, shape ``[d]``.
        authority: Its authority, from learned to fixed.
        asked: The question that it answers; similar queries recall it.
        beside: Further edges, such as those of :func:`build_inhibitions`.
        feedback: Id of the feedback that it comes from.
    """
    query = None if asked is None else asked.query
    node = Node(
        id=content.id or make_note_id(kind, namespace, content.text),
        document="",
        source="",
        content=content.text,
        title=content.title,
        metadata={
            **content.metadata,
            "note": kind,
            **({"title": content.title} if content.title else {}),
        },
        digest=hash_note(kind, content, authority, query),
        vector=vector,
    )
    related_edges = [
        NoteEdge(None, target, _TAUGHT, RELATED_WEIGHT) for target in dict.fromkeys(content.related)
    ]
    inhibitory_edges = [
        NoteEdge(None, target, _INHIBITS, MIN_INHIBITION) for target in dict.fromkeys(content.wrong)
    ]
    return KeepNote(
        namespace,
        node,
        kind,
        authority,
        query,
        None if asked is None else asked.vector,
        None if asked is None else asked.turn,
        feedback,
        (*related_edges, *inhibitory_edges, *beside),
    )


def find_entries(turn: Turn, wrong: Iterable[str]) -> dict[str, str]:
    """Return the entry node of each document of a turn, unless it is the document itself."""
    entry_by_node = {item.node: find_entry(turn, item) for item in turn.returned}
    return {node: entry for node in wrong if (entry := entry_by_node.get(node)) and entry != node}


def build_inhibitions(
    entries: Mapping[str, str], weights: Mapping[tuple[str, str], float]
) -> list[NoteEdge]:
    """Build inhibitory edges to corrected documents from their entry nodes.

    Each weight moves half of the way to -0.6.

    Args:
        entries: Entry node by document, see :func:`find_entries`.
        weights: Weights of the existing inhibitory edges, by ``(entry, document)``.
    """
    return [
        NoteEdge(
            entry, node, _INHIBITS, compute_inhibition_step(weights.get((entry, node), 0.0), -1.0)
        )
        for node, entry in entries.items()
    ]


def _hash_texts(*values: str) -> str:
    # Length prefixes keep ("ab", "c") apart from ("a", "bc").
    return hashlib.sha256("".join(f"{len(v)}:{v}" for v in values).encode()).hexdigest()


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
    if count_words(turn.query) < settings.min_words:
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

    Question and answer together have at most 20,000 characters: half an answer is none.

    The best seeds of the turn get weak edges to it. It has the vector of its question.

    Args:
        turn: The turn with its query and novelty.
        answer: The chain's answer; an empty one makes no note.
        vector: Unit query vector, shape ``[d]``.
        nearest: Cosine of the nearest existing note; -1 without any.
        settings: The gates.
        feedback: Id of the feedback with the answer.
    """
    text, is_known = f"{turn.query}\n{answer.strip()}", nearest >= settings.duplicate_similarity
    if not answer.strip() or len(text) > MAX_NOTE_CHARS or is_known:
        return None
    if find_closed_gate(turn, settings):
        return None
    content = NoteContent(text, id=make_auto_note_id(turn.namespace, turn.query))
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
