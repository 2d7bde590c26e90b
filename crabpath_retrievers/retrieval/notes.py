"""Notes of a namespace, searched in a collection of their own.

Notes never enter the indexes that all namespaces search.

A correction belongs to its question. It comes where its own fit to the query is better than that of
other documents, and then stands before the document that it corrects.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.core.changes import MarkIndexed
from crabpath_retrievers.core.graph import (
    Node,
    Vector,
    compare_vectors,
    stack_vectors,
    stretch_cosine,
)
from crabpath_retrievers.core.metadata import mark_correction
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.notes import Correction, NoteVector
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import CollectionEntry, NamespaceCollections, VectorIndex

AUTO_NOTE_PREFIX = "auto:"
"""Prefix of the ids of automatic notes, which are on probation."""


_AHEAD = 0.17  # similarity by which a correction must be nearer than documents are
_EXPECTED = 0.4  # of the similarity of a document to the question that was corrected
_TWINS = 0.8  # similarity of texts that differ in what identifies them
_WORDS = 0.2  # similarity that a like document gains by having all words that are asked for


class CorrectionEvidence(NamedTuple):
    """Evidence that a correction belongs to a query, with ``n`` documents of the pool.

    Attributes:
        best: The best similarity of the query to the corrected question, to the note's text and to
            what it corrects.
        mean: Its similarity to the mean of the three.
        similar: Similarity of the query to each document, shape ``[n]``.
        expected: Similarity of the corrected question to each, or of what stands for it; ``[n]``.
        wrong: Which of them it corrects, shape ``[n]``.
        alike: Similarity of each to what it corrects, shape ``[n]``.
        known: Which words of the query are in the corrected question, in the note or in what it
            corrects, shape ``[Q]``.
    """

    best: float
    mean: float
    similar: Floats
    expected: Floats
    wrong: NDArray[np.bool_]
    alike: Floats
    known: NDArray[np.bool_]


def measure_fit(evidence: CorrectionEvidence, has: Floats, nats: Floats) -> float | None:
    """Fit of a correction to a query, in [-1, 1]; None where it belongs to another question.

    It is the best similarity of the query to the question that was corrected, to what was wrong and
    to the text of the note. Other documents must be less near to the query than the mean of these
    is, by a margin that grows with how near they were to the question that was corrected: those
    were no better answers then. A document like the corrected one counts as nearer for words of the
    query that only it has, and a twin with such words is what is asked for, however near it is.

    Args:
        evidence: Of the correction.
        has: 1 for each word of the query that a document has, else 0; shape ``[n, Q]``.
        nats: Information of those words, shape ``[Q]``.
    """
    other = ~evidence.wrong
    more = (has - evidence.known) @ nats
    share = more / max(1.0, float(nats.sum()))
    rivals = evidence.similar - _EXPECTED * np.maximum(0.0, evidence.expected)
    rivals += _WORDS * np.maximum(0.0, evidence.alike) * share
    if evidence.mean - rivals[other].max(initial=0.0) < _AHEAD:
        return None
    twins = other & (evidence.alike >= _TWINS)
    return None if more[twins].max(initial=0.0) > 0.0 else evidence.best


def compare_with_mean(vectors: Sequence[Vector], similar: Sequence[float], stretch: float) -> float:
    """Similarity of a query to the mean of some texts.

    Args:
        vectors: Unit vectors of the texts, each of shape ``[d]``.
        similar: Similarity of the query to each.
        stretch: Of the embedder.
    """
    rows = stack_vectors(vectors)
    length = float(stretch_cosine(rows @ rows.T, stretch).sum())
    return sum(similar) / math.sqrt(max(1.0, length))


def find_current_corrections(corrections: Iterable[Correction]) -> list[Correction]:
    """Current correction of each document: a note gives way to what has corrected it since.

    Args:
        corrections: What notes correct, latest note first, documents and notes alike.

    Returns:
        Corrections by notes that nothing corrects, in the same order for each document.
    """
    given = list(corrections)
    said = {item.note: item.said for item in given}
    links: defaultdict[int, list[Correction]] = defaultdict(list)
    for item in given:
        if item.said > said.get(item.document, -1):  # else the note was said again since
            links[item.document].append(item)
    current = list[Correction]()
    for document in list(links):
        seen, queue = {document}, links[document]
        while queue:
            found = [item for item in dict.fromkeys(queue) if item.note not in seen]
            seen |= {item.note for item in found}
            following = {item: links.get(item.note, []) for item in found}
            current += [
                item._replace(document=document)
                for item, newer in following.items()
                if all(one.note in seen for one in newer)
            ]
            queue = [one for newer in following.values() for one in newer]
    return sorted(current, key=lambda item: -item.said)


def choose_corrections(
    corrections: Iterable[Correction], odds: Mapping[int, float]
) -> dict[int, int]:
    """The one note that goes with each corrected document, by key of the document.

    Of several notes about one question the latest counts; of notes about different questions the
    one that fits the query best.

    Args:
        corrections: What notes correct now, latest note first.
        odds: Log-odds of relevance of the notes that may be returned, by key.
    """
    latest: dict[int, dict[str | int, int]] = {}
    for item in corrections:
        if item.note in odds:
            questions = latest.setdefault(item.document, {})
            questions.setdefault(item.query or item.note, item.note)
    return {
        document: max(questions.values(), key=lambda note: odds[note])
        for document, questions in latest.items()
    }


def insert_corrections(
    order: Sequence[int],
    k: int,
    corrections: Mapping[int, int],
    others: AbstractSet[int] = frozenset(),
) -> list[int]:
    """The best k, with each correction before what it corrects; corrections come on top of k.

    A correction that ranks higher by itself stays where it is.

    Args:
        order: Candidates, best first.
        k: Most candidates beside corrections.
        corrections: The note that goes with each corrected candidate.
        others: Corrections that go with no candidate.
    """
    notes = {*others, *corrections.values()}
    chosen: dict[int, None] = {}
    places = k
    for index in order:
        if not places:
            break
        if index not in notes:
            places -= 1
            if index in corrections:
                chosen[corrections[index]] = None
        chosen[index] = None
    return list(chosen)


def mark_corrections(
    store: GraphStore, nodes: Mapping[str, Node], namespace: str
) -> dict[str, Node]:
    """The notes among some nodes of a namespace; the text of those that correct says so."""
    notes = {key: node for key, node in nodes.items() if not node.document}
    if any(node.metadata.get("note") == "correction" for node in notes.values()):
        for fact in store.notes.get_facts(notes, namespace):
            if fact.kind == "correction":
                text = mark_correction(notes[fact.id].content, fact.query)
                notes[fact.id] = replace(notes[fact.id], content=text)
    return notes


class NoteMemory:
    """Finds notes; namespaces without notes cost nothing."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: NoteSettings
    ) -> None:
        """Read ``store``, with collections in the store of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._collections = NamespaceCollections(index, "notes")

    def near(self, vector: Vector, clock: Clock) -> dict[str, float]:
        """Ids of the nearest notes of a namespace with their similarities, nearest first."""
        if not (clock.notes and vector.any()):
            return {}
        notes = self._read_candidates(vector, clock)
        scores = compare_vectors([note.vector for note in notes], vector, self._store.stretch)
        ranked = sorted(zip(scores, notes, strict=True), key=lambda pair: -pair[0])
        return {note.id: score for score, note in ranked[: self._settings.neighbours]}

    def _read_candidates(self, vector: Vector, clock: Clock) -> list[NoteVector]:
        if not self._collections.available:
            limit = self._settings.max_scanned
            return self._store.notes.latest(clock.key, self.get_probation_start(clock), limit)
        ids = self._collections.of(clock.key).search(vector, self._settings.neighbours)
        return self._store.notes.near(clock.key, ids, self.get_probation_start(clock))

    def find_expired(self, ids: Iterable[str], clock: Clock) -> set[str]:
        """Ids of notes whose probation has ended."""
        automatic = (
            [node for node in ids if node.startswith(AUTO_NOTE_PREFIX)] if clock.notes else []
        )
        if not automatic:
            return set()
        return self._store.notes.find_expired(clock.key, automatic, self.get_probation_start(clock))

    def get_probation_start(self, clock: Clock) -> int:
        """The turn from which notes on probation must have been used to be found."""
        # The clock counts the turns before this one.
        return clock.turn + 1 - self._settings.probation_turns

    def catch_up(self, minimum: int = 1) -> None:
        """Index new notes once there are ``minimum`` of them; until then their rows are scanned."""
        if self._store.notes.count_unindexed() < minimum:
            return
        unindexed = self._store.notes.get_unindexed()
        entries = [CollectionEntry(note.namespace, note.id, note.vector) for note in unindexed]
        self._collections.upsert(entries)
        self._store.apply([MarkIndexed(notes=tuple(note.key for note in unindexed))])
        self._collections.delete_gone(
            entries,
            lambda key, ids: {n.id for n in self._store.notes.get_facts(ids) if n.owner == key},
        )

    def reopen(self) -> None:
        """Open the collections again: the embedder was changed."""
        self._collections.reopen()

    def remove(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of notes."""
        self._collections.delete(namespace, ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        self._collections.forget(namespace)
