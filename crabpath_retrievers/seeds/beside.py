"""Collections of vectors beside those of the documents, one per namespace."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.index import VectorIndex


class Entry(NamedTuple):
    """A unit vector ``[d]`` to be searched in the collection of a namespace, by its key."""

    namespace: int
    id: str
    vector: Vector
    text: str = ""


class Beside:
    """Opens them as they are needed; an index without ``beside`` keeps none."""

    def __init__(self, index: VectorIndex | None, name: str) -> None:
        """Keep collections called ``name-<namespace key>`` beside those of ``index``."""
        self._beside, self._name = getattr(index, "beside", None), name
        self._open: dict[int, VectorIndex] = {}

    @property
    def kept(self) -> bool:
        """Whether there can be any."""
        return self._beside is not None

    @property
    def opened(self) -> tuple[int, ...]:
        """Keys of the namespaces whose collections are open."""
        return tuple(self._open)

    def of(self, namespace: int) -> VectorIndex:
        """The collection of a namespace, by key; it is made when it is new."""
        if namespace not in self._open:
            assert self._beside is not None  # noqa: S101
            self._open[namespace] = self._beside(f"{self._name}-{namespace}")
        return self._open[namespace]

    def upsert(self, entries: Iterable[Entry]) -> None:
        """Hand vectors over, one write per namespace; nothing happens where none can be kept."""
        for namespace, waiting in self._by_namespace(entries):
            self.of(namespace).upsert(
                [entry.id for entry in waiting],
                [entry.vector.astype(np.float32) for entry in waiting],
                [entry.text for entry in waiting],
                [{} for _ in waiting],
            )

    def delete_gone(
        self, entries: Iterable[Entry], existing: Callable[[int, list[str]], set[str]]
    ) -> None:
        """Delete those of the vectors just handed over that were taken back meanwhile.

        Args:
            entries: What was handed over.
            existing: Those of the ids of a namespace that the graph store still holds.
        """
        for namespace, given in self._by_namespace(entries):
            ids = [entry.id for entry in given]
            there = existing(namespace, ids)
            self.delete(namespace, [one for one in ids if one not in there])

    def _by_namespace(self, entries: Iterable[Entry]) -> Iterable[tuple[int, list[Entry]]]:
        """Entries of each namespace; none where no collections are kept."""
        of: dict[int, list[Entry]] = {}
        for entry in entries if self.kept else ():
            of.setdefault(entry.namespace, []).append(entry)
        return of.items()

    def delete(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete vectors of a namespace."""
        if self.kept and ids:
            self.of(namespace).delete(ids)

    def forget(self, namespace: int) -> None:
        """Delete the collection of a namespace."""
        if self.kept:
            index = self.of(namespace)
            self._open.pop(namespace)
            index.drop()  # type: ignore[attr-defined]
