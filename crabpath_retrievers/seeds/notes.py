"""Notes: what a namespace was taught, found by similarity in a collection of its own.

Nothing of them enters the indexes that all namespaces search.
"""

from collections.abc import Iterable, Sequence

from crabpath_retrievers.changes.notes import NotesIndexed
from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.graph import Vector, cosines
from crabpath_retrievers.seeds.beside import Beside, Entry
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.note_queries import NoteVector
from crabpath_retrievers.storage.walk_queries import Clock

AUTO = "auto:"
"""How the ids of notes on probation begin."""


class Notes:
    """Finds notes. Namespaces that were never taught anything cost nothing."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: NoteSettings
    ) -> None:
        """Read rows from ``store`` and keep vectors beside those of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._beside = Beside(index, "notes")

    def near(self, vector: Vector, clock: Clock) -> dict[str, float]:
        """Ids of the nearest notes of a namespace with their cosines, nearest first."""
        if not clock.notes:
            return {}
        found = self._candidates(vector, clock)
        if not found:
            return {}
        scores = cosines([note.vector for note in found], vector)
        ranked = sorted(zip(scores, found, strict=True), key=lambda pair: -pair[0])
        return {note.id: score for score, note in ranked[: self._settings.neighbours]}

    def _candidates(self, vector: Vector, clock: Clock) -> list[NoteVector]:
        if not self._beside.kept:
            limit = self._settings.max_scanned
            return self._store.notes.latest(clock.key, self._since(clock), limit)
        ids = self._beside.of(clock.key).search(vector, self._settings.neighbours)
        return self._store.notes.near(clock.key, ids, self._since(clock))

    def expired(self, ids: Iterable[str], clock: Clock) -> set[str]:
        """Those of the nodes that are notes whose probation is over."""
        doubtful = [node for node in ids if node.startswith(AUTO)] if clock.notes else []
        if not doubtful:
            return set()
        return self._store.notes.expired(clock.key, doubtful, self._since(clock))

    def _since(self, clock: Clock) -> int:
        # The clock tells how many turns were; the one that is asked now is one more.
        return clock.turn + 1 - self._settings.probation_turns

    def catch_up(self, least: int = 1) -> None:
        """Hand notes over to the index once ``least`` of them wait; until then they are read."""
        if self._store.notes.pile() < least:
            return
        waiting = self._store.notes.unindexed()
        entries = [Entry(note.namespace, note.id, note.vector) for note in waiting]
        self._beside.upsert(entries)
        self._store.apply([NotesIndexed(tuple(note.key for note in waiting))])
        self._beside.delete_gone(
            entries, lambda _, ids: {note.id for note in self._store.notes.facts(ids)}
        )

    def remove(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of notes."""
        self._beside.delete(namespace, ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        self._beside.forget(namespace)
