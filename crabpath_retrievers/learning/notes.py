"""Notes that follow from feedback: teachings, corrections and directives, and their uses.

After the teaching of [CrabPath] (docs/bibliography.md). Neurogenesis: the answer to a novel
question becomes a note on probation, after the auto-generated nodes of [CrabPath].
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crabpath_retrievers.config import NoteSettings, Settings
from crabpath_retrievers.core.changes import Change, KeepNote, NoteEdge, NoteKind, UseNotes
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, MAX_NOTE_CHARS
from crabpath_retrievers.core.records import (
    Authority,
    EdgeKind,
    Node,
    Turn,
    Vector,
    compare_vectors,
)
from crabpath_retrievers.core.text import count_words, hash_texts, normalise, normalise_name
from crabpath_retrievers.learning.credit import CreditAssignment, CreditedTurn
from crabpath_retrievers.learning.rules import (
    MIN_INHIBITION,
    compute_inhibition_step,
    find_entry,
)
from crabpath_retrievers.retrieval.episodes import NoteMemory
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.learned import KnownNode, StoredFeedback
from crabpath_retrievers.storage.read.notes import build_correction_id
from crabpath_retrievers.storage.read.walk import Clock

NO_VECTOR = "its correction is not kept as a note: neither it nor the question has a vector"
_CORRECTIONS = "correction:"  # how their ids begin
_SAME_WORDS = 0.8  # similarity of texts that state a fact in nearly the same words


def learn_notes(
    read: Reader,
    notes: NoteMemory,
    settings: Settings,
    stored: StoredFeedback,
    assignment: CreditAssignment,
) -> tuple[list[Change], str | None]:
    """Compute what feedback changes in the notes of a namespace, without writing it.

    Feedback about several turns corrects, and answers, the latest of them.

    Returns:
        The changes; and why a correction is not kept, None if it is kept or there is none.
    """
    credited, clock, changes = assignment.turns, assignment.state.clock, list[Change]()
    latest, feedback = credited[0], stored.feedback
    if clock.notes:
        changes += [
            UseNotes(item.turn.namespace, item.credit.used)
            for item in credited
            if item.credit.outcome > 0 and item.credit.used
        ]
    lost = None
    if text := (feedback.correction or "").strip():
        # Without an embedder a correction gets the vector of its question.
        vector = latest.vector if stored.vector is None else stored.vector
        if vector is None:
            lost = NO_VECTOR
        else:
            changes.append(_build_correction(read, stored, text, vector, assignment))
    is_success = latest.credit.outcome > 0 and not feedback.correction
    if settings.learning.neurogenesis and feedback.answer and is_success:
        name = feedback.feedback_id
        note = _build_answer_note(read, notes, settings.note, latest, feedback.answer, name, clock)
        changes += [] if note is None else [note]
    return changes, lost


def _build_correction(
    read: Reader, stored: StoredFeedback, text: str, vector: Vector, assignment: CreditAssignment
) -> KeepNote:
    latest = assignment.turns[0]
    turn, credit, own = latest.turn, latest.credit, stored.vector
    wrong = [node for node, share in credit.documents.items() if share < 0]
    wrong += sorted(credit.irrelevant.difference(wrong))
    if not wrong and credit.outcome < 0 and own is not None:
        # Nothing finer is known: it is about what says otherwise in the same words.
        wrong = find_contradicted(turn, assignment.nodes, own, read.stretch)
    best = [item.node for item in turn.returned[:1]] if credit.outcome < 0 else []
    key = assignment.state.clock.key
    asked = None if latest.vector is None else np.asarray(latest.vector, dtype=np.float32)
    return build_note(
        turn.namespace,
        "correction",
        NoteContent(text, wrong=wrong),
        np.asarray(vector, dtype=np.float32),
        asked=NoteQuestion(turn.query, asked, turn.id),
        beside=build_entry_inhibitions(read, turn, wrong or best, key),
        feedback=stored.feedback.feedback_id,
    )


def _build_answer_note(
    read: Reader,
    notes: NoteMemory,
    settings: NoteSettings,
    latest: CreditedTurn,
    answer: str,
    feedback: str,
    clock: Clock,
) -> KeepNote | UseNotes | None:
    if latest.vector is None:
        return None
    turn, vector = latest.turn, np.asarray(latest.vector, dtype=np.float32)
    note = make_auto_note_id(turn.namespace, turn.query)
    if read.notes.get_facts([note], turn.namespace):
        novel = find_closed_gate(turn, settings) is None
        return UseNotes(turn.namespace, seen=(note,)) if novel else None
    nearest = max(notes.near(read, vector, clock).values(), default=-1.0)
    return build_auto_note(turn, answer, vector, nearest, settings, feedback)


def build_entry_inhibitions(
    read: Reader, turn: Turn, wrong: Sequence[str], namespace: int
) -> list[NoteEdge]:
    """Build inhibitory edges to corrected documents, from the nodes where the turn entered.

    ``wrong`` are the ids of the documents; ``namespace`` is a key. Each weight moves half of the
    way to -0.6. A document gets no edge if it is an entry itself, or if the turn did not return it
    or has no entry.
    """
    entry_by_node = {item.node: find_entry(turn, item) for item in turn.returned}
    entries = {
        node: entry for node in wrong if (entry := entry_by_node.get(node)) and entry != node
    }
    keys = read.learned.keys(sorted({*entries, *entries.values()}), namespace)
    ids = {key: node for node, key in keys.items()}
    weights = {
        (ids[source], ids[target]): weight
        for (source, target, kind), weight in read.learned.weights(turn.namespace, [*ids]).items()
        if kind is EdgeKind.INHIBITS and target in ids
    }
    steps = {
        node: compute_inhibition_step(weights.get((entry, node), 0.0), -1.0)
        for node, entry in entries.items()
    }
    return [NoteEdge(entry, node, _INHIBITS, steps[node]) for node, entry in entries.items()]


def find_contradicted(
    turn: Turn, nodes: Mapping[str, KnownNode], vector: Vector, stretch: float
) -> list[str]:
    """Find the documents of a turn that a text contradicts in nearly the same words.

    ``vector`` is that of the text, shape ``[d]``; documents without a vector in ``nodes`` are left
    out. A correction that ranked first is among the found ones: it led the answer.
    """
    ids = [item.node for item in turn.returned]
    known = {node: nodes[node].vector for node in ids if node in nodes}
    vectors = {node: found for node, found in known.items() if found is not None}
    similar = compare_vectors([*vectors.values()], vector.astype(np.float32), stretch)
    leading = [node for node in ids[:1] if node.startswith(_CORRECTIONS)]
    return [
        node
        for node, near in zip(vectors, similar, strict=True)
        if near >= _SAME_WORDS or node in leading
    ]


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
        related: Ids of nodes to which the note gets an edge.
        wrong: Ids of nodes to which the note gets an inhibitory edge.
        id: Its id; None derives one from namespace and text, and from the question of a correction.
        metadata: Plain values returned with the note.
    """

    text: str
    title: str = ""
    related: Sequence[str] = ()
    wrong: Sequence[str] = ()
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def make_note_id(kind: NoteKind, namespace: str, text: str, query: str | None = None) -> str:
    """Return the id of a note that has none: the same text in one namespace is the same note.

    A correction with a ``query`` gets an id for text and question: "Ask Petra." as a correction of
    two answers is two notes.
    """
    text_id = f"{kind}:{hash_texts(namespace, text)[:24]}"
    if kind != "correction" or not query:
        return text_id
    return build_correction_id(text_id, query)


def hash_note(kind: NoteKind, content: NoteContent, authority: Authority, query: str | None) -> str:
    """Return a fingerprint of a note; two are equal if nothing of the note has changed."""
    targets = (*content.related, "", *content.wrong)
    metadata = ("", json.dumps(content.metadata, sort_keys=True)) if content.metadata else ()
    return hash_texts(
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
    """Build the change that stores a note with the unit vector ``[d]``.

    Args:
        asked: Question that it answers; similar queries recall the note. None without one.
        beside: Further edges, such as those of :func:`build_entry_inhibitions`.
        feedback: Id of the feedback that the note comes from; None for a note that was taught.
    """
    query = None if asked is None else asked.query
    node = Node(
        id=content.id or make_note_id(kind, namespace, content.text, query),
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

    Gates are tried in this order. ``novelty``: a similar text exists (cosine of the best hit at
    least 0.58), or nothing is close at all (at most 0.28), so that the question is off topic.
    ``short``, ``symbols``, ``blocked``: see :class:`~crabpath_retrievers.config.NoteSettings`.
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
    """Build the note for a successful answer to a novel question; None if there is to be none.

    There is none if the answer is empty, a gate is closed (:func:`find_closed_gate`), question and
    answer exceed 20,000 characters together (they are not cut), or ``nearest``, the cosine of the
    nearest note (-1 without any), shows a duplicate. ``vector`` is that of the question;
    ``feedback`` is the id of the feedback behind the note. The best seeds of the turn get weak
    edges to the note.
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
