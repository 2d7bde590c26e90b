"""Regions: the nodes nearest to one hub. The hubs of a level follow from hashes of their ids.

Hubs are read from the graph store and compared exactly, so that regions are the same with every
vector store and in every order of arrival: vectors as stored, in half precision, products in double
precision, where a product of two such unit vectors needs 49 of 53 bits. Nothing is rounded, so
neither the batch nor the machine changes which hub is nearest.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes.history import STATES, RegionKey
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.query import require_count
from crabpath_retrievers.errors import EmbeddingMismatchError, NotFoundError
from crabpath_retrievers.storage import GraphStore, Reader

WHOLE_CORPUS: RegionKey = (0, 0)
_MAX_CACHED = 65_536  # nodes with cached regions: 10 MiB
_MAX_STATES = 10_000  # states that are compared: 30 MiB with 384 dimensions


@dataclass(frozen=True)
class Hubs:
    """The hubs of one level.

    Attributes:
        level: The level: at least 1, or -1 for the states of agents.
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
        """Return the keys of the hubs nearest to unit vectors, shape ``[n, d]``; ties: the oldest.

        Raises as :meth:`compare`.
        """
        best = self.compare(vectors).argmax(axis=1)
        return [self.keys[index] for index in best.tolist()]

    def compare(self, vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the cosines of unit vectors, shape ``[n, d]``, with the hubs, ``[n, hubs]``.

        Raises:
            EmbeddingMismatchError: The vectors have another dimension.
        """
        if vectors.shape[1] != self.vectors.shape[1]:
            msg = (
                f"a vector has {vectors.shape[1]} dimensions, this memory {self.vectors.shape[1]}: "
                "embed it with the embedder of the memory"
            )
            raise EmbeddingMismatchError(msg)
        stored: NDArray[np.float64] = vectors.astype(np.float16).astype(np.float64)
        return stored @ self.vectors.T


@dataclass(slots=True)
class _HubCache:
    """Hubs and regions of nodes in memory, valid while the hubs do not change.

    Attributes:
        version: Version of the hubs when it was created; what was read since is at least as new.
        sizes: Number of hubs by level.
        hubs: Hubs of the levels that were read.
        nodes: By level and key of the node: hash of its vector, key of its hub.
    """

    version: int
    sizes: dict[int, int]
    hubs: dict[int, Hubs] = field(default_factory=dict)
    nodes: dict[RegionKey, tuple[int, int]] = field(default_factory=dict)


class Regions:
    """Assigns vectors and nodes to regions. Safe to use from several threads."""

    def __init__(self, store: GraphStore, settings: RegionSettings) -> None:
        """Read hubs from ``store``."""
        self._store, self._settings = store, settings
        self._cache = _HubCache(-1, {})
        self._lock = threading.Lock()

    def levels(self, version: int | None = None, read: Reader | None = None) -> tuple[int, ...]:
        """Return the levels with transition counts, finest first; none in a very small corpus.

        From the first one with at most ``most`` hubs to the last one with at least two.

        Args:
            version: Version of the hubs, if it has been read already (``Clock.hubs``).
            read: Reader of the operation that asks; None for the store.
        """
        return self._select_levels(self._read_cache(read or self._store, version))

    def hubs(self, level: int, version: int | None = None, read: Reader | None = None) -> Hubs:
        """Return the hubs of a level.

        Args:
            level: The level.
            version: Version of the hubs, if it has been read already.
            read: Reader of the operation that asks; None for the store.

        Raises:
            InvalidInputError: The level is no whole number of at least 1.
            NotFoundError: The level has no hub.
        """
        level = require_count("level", level)
        read = read or self._store
        cache = self._read_cache(read, version)
        if (nearest_keys := self._load_hubs(read, cache, level)) is None:
            levels = ", ".join(map(str, self._select_levels(cache)))
            hint = f"use one of {levels}" if levels else "this memory is too small for any"
            msg = f"level {level} has no hub: {hint}"
            raise NotFoundError(msg)
        return nearest_keys

    def places(
        self, vector: Vector, version: int | None = None, read: Reader | None = None
    ) -> tuple[RegionKey, ...]:
        """Return the regions of a unit vector, shape ``[d]``, whole corpus first.

        Further arguments as for :meth:`hubs`.
        """
        read = read or self._store
        cache, row = self._read_cache(read, version), np.asarray(vector)[None]
        nearest_keys = [
            (level, hubs.nearest(row)[0])
            for level in self._select_levels(cache)
            if (hubs := self._load_hubs(read, cache, level))
        ]
        return (WHOLE_CORPUS, *reversed(nearest_keys))

    def locate(
        self, read: Reader, vector: Vector, nodes: Mapping[int, Vector], version: int
    ) -> tuple[Sequence[RegionKey], dict[int, dict[int, int]]]:
        """Return the regions of a query, whole corpus first; those of nodes, by key and level.

        Args:
            read: Reader of the operation that asks.
            vector: Unit query vector, shape ``[d]``.
            nodes: Unit vectors of the nodes, each of shape ``[d]``, by key.
            version: Version of the hubs.
        """
        places = self.places(np.asarray(vector, dtype=np.float32), version, read)
        found: dict[int, dict[int, int]] = {key: {} for key in nodes}
        for level, _ in places[1:]:
            of_level = self.of_nodes(list(nodes), list(nodes.values()), level, version, read)
            for key, region in of_level.items():
                found[key][level] = region
        return places, found

    def of_nodes(
        self,
        keys: Sequence[int],
        vectors: Sequence[Vector],
        level: int,
        version: int | None = None,
        read: Reader | None = None,
    ) -> dict[int, int]:
        """Return the region of each node at a level, by key; empty if the level has lost its hubs.

        Args:
            keys: Keys of the nodes.
            vectors: Their unit vectors, each of shape ``[d]``.
            level: Level of the regions.
            version: Version of the hubs, if it has been read already.
            read: Reader of the operation that asks; None for the store.
        """
        read = read or self._store
        cache = self._read_cache(read, version)
        if not keys or (hubs := self._load_hubs(read, cache, level)) is None:
            return {}
        # The vector of a node changes with its text, without a new version of the hubs.
        marks = [hash(vector.tobytes()) for vector in vectors]
        cached = [cache.nodes.get((level, key)) for key in keys]
        nearest_keys = {
            key: entry[1]
            for key, mark, entry in zip(keys, marks, cached, strict=True)
            if entry is not None and entry[0] == mark
        }
        missing = [index for index, key in enumerate(keys) if key not in nearest_keys]
        if missing:
            nearest = hubs.nearest(np.stack([vectors[index] for index in missing]))
            nearest_keys |= {keys[index]: hub for index, hub in zip(missing, nearest, strict=True)}
            if len(cache.nodes) + len(missing) > _MAX_CACHED:
                cache.nodes.clear()
            for index in missing:
                cache.nodes[level, keys[index]] = (marks[index], nearest_keys[keys[index]])
        return nearest_keys

    def _select_levels(self, cache: _HubCache) -> tuple[int, ...]:
        return tuple(level for level, n in cache.sizes.items() if 1 < n <= self._settings.max_hubs)

    def _read_cache(self, read: Reader, version: int | None) -> _HubCache:
        """Return the cache of the current hubs, or of those after ``version``."""
        latest = read.regions.version() if version is None else version
        if self._cache.version < latest:
            # A replica may be older than the version that its answers would be remembered for.
            with self._lock:
                if self._cache.version < latest:
                    self._cache = _HubCache(latest, read.primary.regions.sizes())
        return self._cache

    def _load_hubs(self, read: Reader, cache: _HubCache, level: int) -> Hubs | None:
        """Return the hubs of a level; None if it has none or has lost them in the meantime."""
        if level in cache.sizes and level not in cache.hubs:
            rows = read.primary.regions.hubs(level)
            if not rows:
                return None
            keys, ids, titles, vectors = zip(*rows, strict=True)
            stored = np.stack(vectors).astype(np.float64)
            cache.hubs[level] = Hubs(level, keys, ids, titles, stored)
        return cache.hubs.get(level)


class StateHubs:
    """Reads the states of the episodes of agents in a namespace, as hubs."""

    def __init__(self, store: GraphStore, namespace: str) -> None:
        """Read ``store``."""
        self._store, self._namespace = store, namespace
        self._known: tuple[tuple[int, int], Hubs] | None = None

    def __call__(self) -> Hubs:
        """The newest 10,000 states; none before an episode in words."""
        clock = self._store.walk.get_clock(self._namespace)
        version = (clock.key, clock.learned)
        if self._known is None or self._known[0] != version:
            self._known = (version, self._read_states(clock.key))
        return self._known[1]

    def _read_states(self, namespace: int) -> Hubs:
        rows = self._store.regions.get_states(namespace, _MAX_STATES)
        if not rows:
            return Hubs(STATES, (), (), (), np.zeros((0, 0)))
        keys, ids, titles, vectors = zip(*rows, strict=True)
        return Hubs(STATES, keys, ids, titles, np.stack(vectors).astype(np.float64))


def find_whole(level: int) -> RegionKey:
    """All regions of a level together: those of documents, or the states of agents."""
    return (min(level, 0), 0)
