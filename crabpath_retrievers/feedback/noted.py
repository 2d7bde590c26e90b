"""The notes that follow from feedback: corrections, and answers to novel questions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.changes import Change, NoteFeedback
from crabpath_retrievers.changes.notes import KeepNote, NoteEdge, UseNotes
from crabpath_retrievers.config import Settings
from crabpath_retrievers.feedback.learner import Judged
from crabpath_retrievers.graph import EdgeKind, Vector
from crabpath_retrievers.learning.neurogenesis import auto_id, auto_note, closed_gate
from crabpath_retrievers.learning.notes import LONGEST, Asked, Said, against, entries_of, note
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Kept
from crabpath_retrievers.trajectory import Turn

_UNPLACED = "its correction is not kept as a note: neither it nor the question has a vector"


@dataclass(frozen=True, slots=True)
class Noted:
    """Computes what feedback adds to the notes of a namespace; it applies nothing."""

    store: GraphStore
    notes: Notes
    settings: Settings

    def changes(self, kept: Kept, judged: Sequence[Judged]) -> list[Change]:
        """Changes for the same transaction as all else that follows from the feedback.

        Feedback about several turns corrects, and answers, the latest of them.

        Args:
            kept: The feedback, with the vector of its correction.
            judged: The turns that it is about, latest first; at least one.
        """
        return [*self._used(judged), *self._corrected(kept, judged[0]), *self._born(kept, judged)]

    def _used(self, judged: Sequence[Judged]) -> Iterator[Change]:
        namespace = judged[0].turn.namespace
        if not self.store.walk.clock(namespace).notes:
            return
        for item in judged:
            if item.credit.outcome > 0 and item.credit.used:
                yield UseNotes(namespace, item.credit.used)

    def _corrected(self, kept: Kept, judged: Judged) -> Iterator[Change]:
        text = (kept.feedback.correction or "").strip()[:LONGEST]
        if not text:
            return
        # A process without embedder leaves the correction where it was asked for.
        vector = judged.vector if kept.vector is None else kept.vector
        if vector is None:
            yield NoteFeedback(kept.feedback.feedback_id, _UNPLACED)
            return
        turn, wrong = judged.turn, _wrong(judged)
        said = Said(text, wrong=wrong)
        place = None if judged.vector is None else _single(judged.vector)
        asked = Asked(turn.query, place, turn.id)
        beside = entry_edges(self.store, turn, wrong)
        feedback = kept.feedback.feedback_id
        yield note(
            turn.namespace,
            "correction",
            said,
            _single(vector),
            asked=asked,
            beside=beside,
            feedback=feedback,
        )

    def _born(self, kept: Kept, judged: Sequence[Judged]) -> Iterator[Change]:
        latest, answer = judged[0], kept.feedback.answer
        if not self.settings.learning.neurogenesis or not answer or latest.vector is None:
            return
        if latest.credit.outcome > 0 and not kept.feedback.correction:
            found = self._born_of(latest, answer, kept.feedback.feedback_id)
            if found is not None:
                yield found

    def _born_of(self, latest: Judged, answer: str, feedback: str) -> KeepNote | UseNotes | None:
        assert latest.vector is not None  # noqa: S101
        turn, vector = latest.turn, _single(latest.vector)
        known = auto_id(turn.namespace, turn.query)
        if self.store.notes.facts([known]):
            novel = closed_gate(turn, self.settings.note) is None
            return UseNotes(turn.namespace, seen=(known,)) if novel else None
        near = self.notes.near(vector, self.store.walk.clock(turn.namespace))
        nearest = max(near.values(), default=-1.0)
        return auto_note(turn, answer, vector, nearest, self.settings.note, feedback)


def entry_edges(store: GraphStore, turn: Turn, wrong: Sequence[str]) -> list[NoteEdge]:
    """Inhibition of corrected documents where the turn came to them."""
    entries = entries_of(turn, wrong)
    keys = store.learned.keys(sorted({*entries, *entries.values()}))
    ids = {key: node for node, key in keys.items()}
    weights = {
        (ids[source], ids[target]): weight
        for (source, target, kind), weight in store.learned.weights(turn.namespace, [*ids]).items()
        if kind is EdgeKind.INHIBITS and target in ids
    }
    return against(entries, weights)


def _wrong(judged: Judged) -> list[str]:
    """What a correction corrects: what was used in a failure, else the best document of one."""
    blamed = [node for node, credit in judged.credit.documents.items() if credit < 0]
    if blamed or judged.credit.outcome >= 0:
        return blamed
    return [item.node for item in judged.turn.returned[:1]]


def _single(vector: Vector) -> Vector:
    return np.asarray(vector, dtype=np.float32)
