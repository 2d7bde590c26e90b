"""One collection of vectors per namespace, in the vector store of the documents."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.index import VectorIndex


class CollectionEntry(NamedTuple):
    """A unit vector ``[d]`` for the collection of a namespace, which is given by its key."""

    namespace: int
    id: str
    vector: Vector
    text: str = ""


class NamespaceCollections:
    """Opens collections on demand; an index without the method ``beside`` has none."""

    def __init__(self, index: VectorIndex | None, name: str) -> None:
        """Use collections called ``name-<namespace key>`` in the store of ``index``."""
        self._beside, self._name = getattr(index, "beside", None), name
        self._open: dict[int, VectorIndex] = {}

    @property
    def available(self) -> bool:
        """Whether the index supports further collections."""
        return self._beside is not None

    @property
    def open_namespaces(self) -> tuple[int, ...]:
        """Keys of the namespaces whose collections are open."""
        return tuple(self._open)

    def of(self, namespace: int) -> VectorIndex:
        """The collection of a namespace, given by key; it is created if it does not exist."""
        if namespace not in self._open:
            assert self._beside is not None  # noqa: S101
            self._open[namespace] = self._beside(f"{self._name}-{namespace}")
        return self._open[namespace]

    def upsert(self, entries: Iterable[CollectionEntry]) -> None:
        """Add vectors, one write per namespace; does nothing without collections."""
        for namespace, group in self._by_namespace(entries):
            self.of(namespace).upsert(
                [entry.id for entry in group],
                [entry.vector.astype(np.float32) for entry in group],
                [entry.text for entry in group],
                [{} for _ in group],
            )

    def delete_gone(
        self, entries: Iterable[CollectionEntry], existing: Callable[[int, list[str]], set[str]]
    ) -> None:
        """Delete vectors that were just added but whose rows have been deleted meanwhile.

        Args:
            entries: Entries that were added.
            existing: Those of the ids of a namespace that the graph store still has.
        """
        for namespace, group in self._by_namespace(entries):
            ids = [entry.id for entry in group]
            present = existing(namespace, ids)
            self.delete(namespace, [entry_id for entry_id in ids if entry_id not in present])

    def _by_namespace(
        self, entries: Iterable[CollectionEntry]
    ) -> Iterable[tuple[int, list[CollectionEntry]]]:
        """Entries by namespace; empty without collections."""
        groups: dict[int, list[CollectionEntry]] = {}
        for entry in entries if self.available else ():
            groups.setdefault(entry.namespace, []).append(entry)
        return groups.items()

    def delete(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete vectors of a namespace."""
        if self.available and ids:
            self.of(namespace).delete(ids)

    def forget(self, namespace: int) -> None:
        """Delete the collection of a namespace."""
        if self.available:
            index = self.of(namespace)
            self._open.pop(namespace)
            index.drop()  # type: ignore[attr-defined]
