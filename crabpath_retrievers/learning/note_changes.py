"""Changes of notes that follow from feedback: uses, corrections, answers to novel questions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.changes import Change, SettleFeedback
from crabpath_retrievers.core.changes.notes import KeepNote, NoteEdge, UseNotes
from crabpath_retrievers.core.graph import EdgeKind, Vector
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.learner import CreditedTurn
from crabpath_retrievers.learning.rules.notes import (
    MAX_NOTE_CHARS,
    NoteContent,
    NoteQuestion,
    build_auto_note,
    build_inhibitions,
    build_note,
    find_closed_gate,
    find_entries,
    make_auto_note_id,
)
from crabpath_retrievers.retrieval.notes import NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import StoredFeedback

_NO_VECTOR = "its correction is not kept as a note: neither it nor the question has a vector"


@dataclass(frozen=True, slots=True)
class NoteLearner:
    """Computes what feedback changes in the notes of a namespace; it writes nothing."""

    store: GraphStore
    notes: NoteMemory
    settings: Settings

    def compute_changes(
        self, stored: StoredFeedback, credited: Sequence[CreditedTurn]
    ) -> list[Change]:
        """Compute changes for the transaction in which the feedback is applied.

        Feedback about several turns corrects, and answers, the latest of them.

        Args:
            stored: The feedback, with the vector of its correction.
            credited: The turns that it is about, latest first; at least one.
        """
        return [
            *self._count_note_uses(credited),
            *self._note_correction(stored, credited[0]),
            *self._note_answer(stored, credited),
        ]

    def _count_note_uses(self, credited: Sequence[CreditedTurn]) -> Iterator[Change]:
        namespace = credited[0].turn.namespace
        if not self.store.walk.get_clock(namespace).notes:
            return
        for item in credited:
            if item.credit.outcome > 0 and item.credit.used:
                yield UseNotes(namespace, item.credit.used)

    def _note_correction(self, stored: StoredFeedback, credited: CreditedTurn) -> Iterator[Change]:
        text = (stored.feedback.correction or "").strip()[:MAX_NOTE_CHARS]
        if not text:
            return
        # Without an embedder a correction gets the vector of its question.
        vector = credited.vector if stored.vector is None else stored.vector
        if vector is None:
            yield SettleFeedback(stored.feedback.feedback_id, _NO_VECTOR)
            return
        turn, wrong = credited.turn, _find_wrong_documents(credited)
        content = NoteContent(text, wrong=wrong)
        query_vector = None if credited.vector is None else _to_float32(credited.vector)
        question = NoteQuestion(turn.query, query_vector, turn.id)
        inhibitions = build_entry_inhibitions(self.store, turn, wrong)
        feedback = stored.feedback.feedback_id
        yield build_note(
            turn.namespace,
            "correction",
            content,
            _to_float32(vector),
            asked=question,
            beside=inhibitions,
            feedback=feedback,
        )

    def _note_answer(
        self, stored: StoredFeedback, credited: Sequence[CreditedTurn]
    ) -> Iterator[Change]:
        latest, answer = credited[0], stored.feedback.answer
        if not self.settings.learning.neurogenesis or not answer or latest.vector is None:
            return
        if latest.credit.outcome > 0 and not stored.feedback.correction:
            change = self._build_answer_note(latest, answer, stored.feedback.feedback_id)
            if change is not None:
                yield change

    def _build_answer_note(
        self, latest: CreditedTurn, answer: str, feedback: str
    ) -> KeepNote | UseNotes | None:
        assert latest.vector is not None  # noqa: S101
        turn, vector = latest.turn, _to_float32(latest.vector)
        note = make_auto_note_id(turn.namespace, turn.query)
        if self.store.notes.get_facts([note]):
            novel = find_closed_gate(turn, self.settings.note) is None
            return UseNotes(turn.namespace, seen=(note,)) if novel else None
        cosines = self.notes.near(vector, self.store.walk.get_clock(turn.namespace))
        nearest = max(cosines.values(), default=-1.0)
        return build_auto_note(turn, answer, vector, nearest, self.settings.note, feedback)


def build_entry_inhibitions(store: GraphStore, turn: Turn, wrong: Sequence[str]) -> list[NoteEdge]:
    """Build inhibitory edges to corrected documents, from the nodes where the turn entered."""
    entries = find_entries(turn, wrong)
    keys = store.learned.keys(sorted({*entries, *entries.values()}))
    ids = {key: node for node, key in keys.items()}
    weights = {
        (ids[source], ids[target]): weight
        for (source, target, kind), weight in store.learned.weights(turn.namespace, [*ids]).items()
        if kind is EdgeKind.INHIBITS and target in ids
    }
    return build_inhibitions(entries, weights)


def _find_wrong_documents(credited: CreditedTurn) -> list[str]:
    """Return the documents that a correction is about.

    The documents used in a failure, else the best document of a failed turn.
    """
    blamed = [node for node, credit in credited.credit.documents.items() if credit < 0]
    if blamed or credited.credit.outcome >= 0:
        return blamed
    return [item.node for item in credited.turn.returned[:1]]


def _to_float32(vector: Vector) -> Vector:
    return np.asarray(vector, dtype=np.float32)
