"""Regions: the nodes nearest to one hub. A level has the hubs that the hashes of ids say.

Hubs are read from the graph store and compared exactly, so that regions are the same with every
vector store and in every order of arrival: as stored, in half precision, and in double precision,
where a product of two such unit vectors needs 49 of 53 bits. Nothing is rounded, so neither a
batch nor a machine changes which hub is nearest.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.changes.regions import Place
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError, NotFoundError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import shown

EVERYWHERE: Place = (0, 0)
_KEPT = 65_536  # nodes whose regions are kept at hand: 10 MiB


@dataclass(frozen=True)
class Hubs:
    """The hubs of one level.

    Attributes:
        keys, ids, titles: Of the hubs, in the order of their keys.
        vectors: Shape ``[hubs, d]``, unit length, as stored.
    """

    level: int
    keys: tuple[int, ...]
    ids: tuple[str, ...]
    titles: tuple[str, ...]
    vectors: NDArray[np.float64]

    @cached_property
    def names(self) -> dict[int, str]:
        """Ids by key."""
        return dict(zip(self.keys, self.ids, strict=True))

    def nearest(self, vectors: NDArray[np.floating[Any]]) -> list[int]:
        """Keys of the hubs nearest to unit vectors of shape ``[n, d]``; of equals the oldest.

        Raises:
            EmbeddingMismatchError: The vectors have another dimension.
        """
        if vectors.shape[1] != self.vectors.shape[1]:
            msg = (
                f"a vector has {vectors.shape[1]} dimensions, this memory {self.vectors.shape[1]}: "
                "embed it with the embedder of the memory"
            )
            raise EmbeddingMismatchError(msg)
        stored = vectors.astype(np.float16).astype(np.float64)
        best = (stored @ self.vectors.T).argmax(axis=1)
        return [self.keys[place] for place in best.tolist()]


@dataclass(slots=True)
class _Known:
    """What is kept at hand while the hubs stay as they are.

    Attributes:
        version: Of the hubs; what was read is as new, or newer.
        sizes: Hubs by level.
        hubs: Those of the levels that were asked for.
        nodes: By level and key of the node: mark of its vector, key of its hub.
    """

    version: int
    sizes: dict[int, int]
    hubs: dict[int, Hubs] = field(default_factory=dict)
    nodes: dict[Place, tuple[int, int]] = field(default_factory=dict)


class Regions:
    """Assigns vectors and nodes to regions. Safe to use from several threads."""

    def __init__(self, store: GraphStore, settings: RegionSettings) -> None:
        """Read hubs from ``store``."""
        self._store, self._settings = store, settings
        self._known = _Known(-1, {})
        self._reading = threading.Lock()

    def levels(self, version: int | None = None) -> tuple[int, ...]:
        """The levels in which steps are counted, finest first; none in a very small corpus.

        From the first one with at most ``most`` hubs to the last one with at least two.

        Args:
            version: Of the hubs, where it has been read already (``Clock.hubs``).
        """
        return self._levels(self._now(version))

    def hubs(self, level: int, version: int | None = None) -> Hubs:
        """The hubs of a level.

        Raises:
            InvalidInputError: The level is no whole number of at least 1.
            NotFoundError: The level has no hub.
        """
        if isinstance(level, bool) or not isinstance(level, int) or level < 1:
            msg = f"level must be a whole number of at least 1, not {shown(level)}"
            raise InvalidInputError(msg)
        known = self._now(version)
        if (found := self._at(known, level)) is None:
            top = max(known.sizes, default=0)
            there = f"levels 1 to {top} have some" if top else "this memory is too small for any"
            msg = f"level {shown(level)} has no hub: {there}"
            raise NotFoundError(msg)
        return found

    def places(self, vector: Vector, version: int | None = None) -> tuple[Place, ...]:
        """The regions in which a unit vector ``[d]`` lies, from everything to the finest."""
        known, row = self._now(version), np.asarray(vector)[None]
        found = [
            (level, hubs.nearest(row)[0])
            for level in self._levels(known)
            if (hubs := self._at(known, level))
        ]
        return (EVERYWHERE, *reversed(found))

    def of_nodes(
        self,
        keys: Sequence[int],
        vectors: Sequence[Vector],
        level: int,
        version: int | None = None,
    ) -> dict[int, int]:
        """The region of each node at a level, by key; none where the level has lost its hubs.

        Args:
            keys: Of the nodes.
            vectors: Their unit vectors, each of shape ``[d]``.
            level: Of the regions.
            version: Of the hubs, where it has been read already.
        """
        known = self._now(version)
        if not keys or (hubs := self._at(known, level)) is None:
            return {}
        # The vector of a node changes with its text, and no hub need change with it.
        marks = [hash(vector.tobytes()) for vector in vectors]
        kept = [known.nodes.get((level, key)) for key in keys]
        found = {
            key: entry[1]
            for key, mark, entry in zip(keys, marks, kept, strict=True)
            if entry is not None and entry[0] == mark
        }
        new = [place for place, key in enumerate(keys) if key not in found]
        if new:
            near = hubs.nearest(np.stack([vectors[place] for place in new]))
            found |= {keys[place]: hub for place, hub in zip(new, near, strict=True)}
            if len(known.nodes) + len(new) > _KEPT:
                known.nodes.clear()
            for place in new:
                known.nodes[level, keys[place]] = (marks[place], found[keys[place]])
        return found

    def _levels(self, known: _Known) -> tuple[int, ...]:
        return tuple(level for level, n in known.sizes.items() if 1 < n <= self._settings.max_hubs)

    def _now(self, version: int | None) -> _Known:
        """What is known of the hubs as they are now, or were after ``version``."""
        now = self._store.regions.version() if version is None else version
        if self._known.version < now:
            with self._reading:
                if self._known.version < now:
                    self._known = _Known(now, self._store.regions.sizes())
        return self._known

    def _at(self, known: _Known, level: int) -> Hubs | None:
        """The hubs of a level; None where it has none, or has lost them since it was counted."""
        if level in known.sizes and level not in known.hubs:
            rows = self._store.regions.hubs(level)
            if not rows:
                return None
            keys, ids, titles, vectors = zip(*rows, strict=True)
            stored = np.stack(vectors).astype(np.float64)
            known.hubs[level] = Hubs(level, keys, ids, titles, stored)
        return known.hubs.get(level)
