"""The protocol of vector indexes.

The SQL store has the vectors themselves, so an index only finds ids; scores are computed here in
the same way for every index, whatever its distance.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock

MetadataFilter = Mapping[str, Any] | None
FindExisting = Callable[[Sequence[str]], set[str] | None]
"""Finds those of the ids that a vector store has; None if the store cannot be asked."""


class VectorIndex(Protocol):
    """Finds the ids of nearest vectors. Implementations must be thread-safe."""

    @property
    def description(self) -> str:
        """What and where the index is, for messages."""

    def upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add vectors, or replace those with the same id.

        Args:
            ids: Node ids, distinct.
            vectors: Unit vectors, each of shape ``[d]``.
            texts: The embedded texts.
            metadatas: JSON-safe metadata to filter by.
        """

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest vectors, nearest first.

        Args:
            vector: Unit query vector, shape ``[d]``.
            k: Number of hits, at least 1.
            filter: Condition on metadata, in the index's own syntax.
        """

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002
        """Those of the ids whose metadata satisfies a filter."""

    def count(self) -> int:
        """Number of vectors."""

    def close(self) -> None:
        """Release files and connections."""


def get_owner_lookup(index: VectorIndex) -> FindExisting | None:
    """Look-up of ids in a store owned by others; None for an index that the memory owns."""
    find_existing: FindExisting | None = getattr(index, "find_existing", None)
    return find_existing if getattr(index, "foreign", False) else None


def find_deleted(
    find_existing: FindExisting, store: GraphStore, ids: Sequence[str], clock: Clock
) -> set[str]:
    """Those of the documents that the owner of the vector store has deleted from it.

    Args:
        find_existing: Looks up ids in the owner's store.
        store: The graph store; notes are never in the owner's store.
        ids: Ids of a few documents and notes.
        clock: State of the namespace.
    """
    notes = {note.id for note in store.notes.get_facts(ids)} if clock.notes else set()
    documents = [node for node in ids if node not in notes]
    existing = find_existing(documents) if documents else None
    return set() if existing is None else set(documents) - existing
