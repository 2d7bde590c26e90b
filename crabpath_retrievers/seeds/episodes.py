"""Episodes: successes that are remembered by their query, so that their documents come again.

Only wins enter (document 004, E7d); near-duplicates count as one.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.changes import EpisodesIndexed, KeepEpisode
from crabpath_retrievers.config import EpisodeSettings
from crabpath_retrievers.graph import Vector, cosines
from crabpath_retrievers.seeds.beside import Beside
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Episode
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.text import tokens


class Near(NamedTuple):
    """An episode with the cosine of its query and the one that is asked."""

    episode: Episode
    similarity: float


class Episodes:
    """Remembers and recalls successes, one collection of vectors per namespace."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: EpisodeSettings
    ) -> None:
        """Keep rows in ``store`` and vectors beside those of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._beside = Beside(index, "episodes")

    def recall(self, vector: Vector, clock: Clock) -> dict[str, float]:
        """How strongly past successes speak for documents, in [0, 1], by node id."""
        found: dict[str, float] = {}
        for near in self.near(vector, clock.key):
            strength = self._strength(near.similarity)
            best = max(near.episode.documents.values(), default=1.0)
            for node, credit in near.episode.documents.items():
                found[node] = max(found.get(node, 0.0), strength * credit / best)
        return {node: strength for node, strength in found.items() if strength > 0}

    def _strength(self, similarity: float) -> float:
        least = self._settings.min_similarity
        return max(0.0, (similarity - least) / (1.0 - least))

    def near(self, vector: Vector, namespace: int) -> list[Near]:
        """The nearest episodes of a namespace, nearest first."""
        if not self._beside.kept:
            episodes = self._store.learned.latest_episodes(namespace, self._settings.scanned)
        else:
            ids = self._beside.of(namespace).search(vector, self._settings.neighbours)
            episodes = self._store.learned.episodes(namespace, ids)
        if not episodes:
            return []
        similar = cosines([episode.vector for episode in episodes], vector)
        found = [Near(e, cosine) for e, cosine in zip(episodes, similar, strict=True)]
        return sorted(found, key=lambda near: -near.similarity)[: self._settings.neighbours]

    def change(
        self,
        namespace: str,
        clock: Clock,
        query: str,
        vector: Vector,
        documents: Mapping[str, float],
    ) -> KeepEpisode:
        """The change that remembers a success: a near-duplicate grows, else a new one begins."""
        nearest = self.near(vector, clock.key)[:1] if clock.key else []
        if nearest and nearest[0].similarity >= self._settings.same:
            known = nearest[0].episode
            return KeepEpisode(namespace, known.id, known.query, known.vector, 1.0, documents)
        digest = hashlib.sha256(f"{namespace}\n{' '.join(tokens(query))}".encode()).hexdigest()
        return KeepEpisode(namespace, digest[:32], query, vector, 1.0, documents)

    def catch_up(self, least: int = 1) -> None:
        """Hand episodes over to the index once ``least`` of them wait; until then they are read.

        Indexing takes an embedded Chroma 30 ms, for one episode or for a hundred.
        """
        if self._store.learned.pile() < least:
            return
        waiting = self._store.learned.unindexed()
        if self._beside.kept:
            for namespace in {namespace for namespace, _ in waiting}:
                of = [episode for key, episode in waiting if key == namespace]
                self._beside.of(namespace).upsert(
                    [episode.id for episode in of],
                    [episode.vector.astype(np.float32) for episode in of],
                    [episode.query for episode in of],
                    [{} for _ in of],
                )
        self._store.apply([EpisodesIndexed(tuple(episode.id for _, episode in waiting))])

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        self._beside.forget(namespace)
