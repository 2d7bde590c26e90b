"""The protocol of vector indexes.

The SQL store keeps the vectors themselves, so an index only has to find ids; scores are computed
alike for every index, whatever its distance and sign.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock

Filter = Mapping[str, Any] | None
Held = Callable[[Sequence[str]], set[str] | None]
"""Tells which of the ids a store holds; None when it cannot tell."""


class VectorIndex(Protocol):
    """Finds the ids of near vectors. Implementations must be safe to call from threads."""

    @property
    def description(self) -> str:
        """What and where it is, for people."""

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
            texts: The texts that the vectors stand for.
            metadatas: JSON-safe metadata to filter by.
        """

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""

    def search(self, vector: Vector, k: int, filter: Filter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest vectors, nearest first.

        Args:
            vector: Unit query vector, shape ``[d]``.
            k: Number of hits, at least 1.
            filter: Condition on metadata in the index's own language.
        """

    def matching(self, ids: Sequence[str], vector: Vector, filter: Filter) -> set[str]:  # noqa: A002
        """Those of the ids that satisfy a filter."""

    def count(self) -> int:
        """Number of vectors."""

    def close(self) -> None:
        """Release files and connections."""


def held_by_owner(index: VectorIndex) -> Held | None:
    """Asks a store that somebody else may delete from; None for an index of the memory's own."""
    held: Held | None = getattr(index, "held", None)
    return held if getattr(index, "foreign", False) else None


def find_gone(held: Held, store: GraphStore, ids: Sequence[str], clock: Clock) -> set[str]:
    """Those of the documents that their owner has deleted from the store.

    Args:
        held: Asks the owner's store.
        store: Knows what are notes: they never stand in the owner's store.
        ids: Of documents and notes, few.
        clock: Of the namespace that asks.
    """
    notes = {note.id for note in store.notes.facts(ids)} if clock.notes else set()
    asked = [node for node in ids if node not in notes]
    there = held(asked) if asked else None
    return set() if there is None else set(asked) - there
