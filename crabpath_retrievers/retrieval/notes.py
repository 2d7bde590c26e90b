"""Notes of a namespace, searched in a collection of their own.

Notes never enter the indexes that all namespaces search.
"""

from collections.abc import Iterable, Sequence

from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.core.changes import MarkIndexed
from crabpath_retrievers.core.graph import (
    Vector,
    compare_vectors,
)
from crabpath_retrievers.storage import GraphStore, Reader, Store
from crabpath_retrievers.storage.read.notes import NoteVector
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import CollectionEntry, NamespaceCollections, VectorIndex

AUTO_NOTE_PREFIX = "auto:"
"""Prefix of the ids of automatic notes, which are on probation."""


class NoteMemory:
    """Finds notes; namespaces without notes cost nothing."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: NoteSettings
    ) -> None:
        """Read ``store``, with collections in the store of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._collections = NamespaceCollections(index, "notes")

    def near(self, read: Reader, vector: Vector, clock: Clock) -> dict[str, float]:
        """Ids of the nearest notes of a namespace with their similarities, nearest first."""
        if not (clock.notes and vector.any()):
            return {}
        notes = self._read_candidates(read, vector, clock)
        scores = compare_vectors([note.vector for note in notes], vector, read.stretch)
        ranked = sorted(zip(scores, notes, strict=True), key=lambda pair: -pair[0])
        return {note.id: score for score, note in ranked[: self._settings.neighbours]}

    def _read_candidates(self, read: Reader, vector: Vector, clock: Clock) -> list[NoteVector]:
        if not self._collections.available:
            limit = self._settings.max_scanned
            return read.notes.latest(clock.key, self.get_probation_start(clock), limit)
        ids = self._collections.of(clock.key).on(read).search(vector, self._settings.neighbours)
        return read.notes.near(clock.key, ids, self.get_probation_start(clock))

    def find_expired(self, read: Reader, ids: Iterable[str], clock: Clock) -> set[str]:
        """Ids of notes whose probation has ended."""
        automatic = (
            [node for node in ids if node.startswith(AUTO_NOTE_PREFIX)] if clock.notes else []
        )
        if not automatic:
            return set()
        return read.notes.find_expired(clock.key, automatic, self.get_probation_start(clock))

    def get_probation_start(self, clock: Clock) -> int:
        """The turn from which notes on probation must have been used to be found."""
        # The clock counts the turns before this one.
        return clock.turn + 1 - self._settings.probation_turns

    def catch_up(self, minimum: int = 1) -> None:
        """Index new notes once there are ``minimum`` of them; until then their rows are scanned.

        A process without the index leaves it to others.
        """
        if not self._collections.has_index or self._store.notes.count_unindexed() < minimum:
            return
        unindexed = self._store.notes.get_unindexed()
        entries = [CollectionEntry(note.namespace, note.id, note.vector) for note in unindexed]
        self._collections.upsert(entries)
        self._store.apply([MarkIndexed(notes=tuple(note.key for note in unindexed))])
        self._collections.delete_gone(
            self._store,
            entries,
            lambda key, ids: {n.id for n in self._store.notes.get_facts(ids) if n.owner == key},
        )

    def reopen(self) -> None:
        """Open the collections again: the embedder was changed."""
        self._collections.reopen()

    def remove(self, store: Store, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of notes."""
        self._collections.delete(store, namespace, ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        self._collections.forget(namespace)
