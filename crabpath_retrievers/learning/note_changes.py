"""Changes of notes that follow from feedback: uses, corrections, answers to novel questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.changes.notes import KeepNote, NoteEdge, UseNotes
from crabpath_retrievers.core.records import EdgeKind, Turn, Vector, compare_vectors
from crabpath_retrievers.learning.credit import CreditAssignment, CreditedTurn
from crabpath_retrievers.learning.rules.notes import (
    NoteContent,
    NoteQuestion,
    build_auto_note,
    build_inhibitions,
    build_note,
    find_closed_gate,
    find_entries,
    make_auto_note_id,
)
from crabpath_retrievers.retrieval.episodes import NoteMemory
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.learned import KnownNode, StoredFeedback
from crabpath_retrievers.storage.read.walk import Clock

NO_VECTOR = "its correction is not kept as a note: neither it nor the question has a vector"
_CORRECTIONS = "correction:"  # how their ids begin
_SAME_WORDS = 0.8  # similarity of texts that state a fact in nearly the same words


@dataclass(frozen=True, slots=True)
class NoteLearner:
    """Computes what feedback changes in the notes of a namespace; it writes nothing."""

    notes: NoteMemory
    settings: Settings

    def learn(
        self, read: Reader, stored: StoredFeedback, assignment: CreditAssignment
    ) -> tuple[list[Change], str | None]:
        """Compute changes for the transaction in which the feedback is applied.

        Feedback about several turns corrects, and answers, the latest of them.

        Args:
            read: Reader of the store.
            stored: The feedback, with the vector of its correction.
            assignment: The turns that it is about; at least one.

        Returns:
            The changes, and why a correction is not kept, if so.
        """
        credited, clock, changes = assignment.turns, assignment.state.clock, list[Change]()
        latest, feedback = credited[0], stored.feedback
        if clock.notes:
            changes += [
                UseNotes(item.turn.namespace, item.credit.used)
                for item in credited
                if item.credit.outcome > 0 and item.credit.used
            ]
        text = (feedback.correction or "").strip()
        correction = (
            self._build_correction(read, stored, text, latest, assignment.nodes, clock.key)
            if text
            else None
        )
        if correction is not None:
            changes.append(correction)
        is_success = latest.credit.outcome > 0 and not feedback.correction
        if self.settings.learning.neurogenesis and feedback.answer and is_success:
            note = self._build_answer_note(
                read, latest, feedback.answer, feedback.feedback_id, clock
            )
            changes += [] if note is None else [note]
        return changes, NO_VECTOR if text and correction is None else None

    def _build_correction(
        self,
        read: Reader,
        stored: StoredFeedback,
        text: str,
        credited: CreditedTurn,
        nodes: Mapping[str, KnownNode],
        namespace: int,
    ) -> KeepNote | None:
        # Without an embedder a correction gets the vector of its question.
        vector = credited.vector if stored.vector is None else stored.vector
        if vector is None:
            return None
        turn = credited.turn
        wrong = self._find_wrong(credited, nodes, stored.vector, read.stretch)
        query_vector = (
            None if credited.vector is None else np.asarray(credited.vector, dtype=np.float32)
        )
        return build_note(
            turn.namespace,
            "correction",
            NoteContent(text, wrong=wrong),
            np.asarray(vector, dtype=np.float32),
            asked=NoteQuestion(turn.query, query_vector, turn.id),
            beside=build_entry_inhibitions(read, turn, wrong or _find_best(credited), namespace),
            feedback=stored.feedback.feedback_id,
        )

    def _find_wrong(
        self,
        credited: CreditedTurn,
        nodes: Mapping[str, KnownNode],
        vector: Vector | None,
        stretch: float,
    ) -> list[str]:
        """Return what a correction is about: documents used in a failure, and irrelevant ones.

        Of a failed turn about which no more is known, what it says otherwise in the same words.
        """
        credit = credited.credit
        blamed = [node for node, share in credit.documents.items() if share < 0]
        blamed += sorted(credit.irrelevant.difference(blamed))
        if blamed or credit.outcome >= 0 or vector is None:
            return blamed
        return find_contradicted(credited.turn, nodes, vector, stretch)

    def _build_answer_note(
        self, read: Reader, latest: CreditedTurn, answer: str, feedback: str, clock: Clock
    ) -> KeepNote | UseNotes | None:
        if latest.vector is None:
            return None
        turn, vector = latest.turn, np.asarray(latest.vector, dtype=np.float32)
        note = make_auto_note_id(turn.namespace, turn.query)
        if read.notes.get_facts([note], turn.namespace):
            novel = find_closed_gate(turn, self.settings.note) is None
            return UseNotes(turn.namespace, seen=(note,)) if novel else None
        nearest = max(self.notes.near(read, vector, clock).values(), default=-1.0)
        return build_auto_note(turn, answer, vector, nearest, self.settings.note, feedback)


def build_entry_inhibitions(
    read: Reader, turn: Turn, wrong: Sequence[str], namespace: int
) -> list[NoteEdge]:
    """Build inhibitory edges to corrected documents, from the nodes where the turn entered.

    Args:
        read: Reader of the graph store.
        turn: The turn.
        wrong: Ids of the corrected documents.
        namespace: Key of the namespace of the turn.
    """
    entries = find_entries(turn, wrong)
    keys = read.learned.keys(sorted({*entries, *entries.values()}), namespace)
    ids = {key: node for node, key in keys.items()}
    weights = {
        (ids[source], ids[target]): weight
        for (source, target, kind), weight in read.learned.weights(turn.namespace, [*ids]).items()
        if kind is EdgeKind.INHIBITS and target in ids
    }
    return build_inhibitions(entries, weights)


def find_contradicted(
    turn: Turn, nodes: Mapping[str, KnownNode], vector: Vector, stretch: float
) -> list[str]:
    """Documents of a turn that a text says otherwise in nearly the same words.

    So is the correction that led the answer: it was taken for right.

    Args:
        turn: The turn.
        nodes: Its nodes that still exist, by id.
        vector: Unit vector ``[d]`` of the text.
        stretch: Of the embedder.
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


def _find_best(credited: CreditedTurn) -> list[str]:
    """The best document of a failed turn, about which nothing finer is known."""
    if credited.credit.outcome >= 0:
        return []
    return [item.node for item in credited.turn.returned[:1]]
