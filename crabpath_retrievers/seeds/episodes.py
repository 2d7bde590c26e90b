"""Episodes: successes that are remembered by their query, so that their documents come again.

Only wins enter (document 004, E7d); near-duplicates count as one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.changes import EpisodesIndexed, KeepEpisode
from crabpath_retrievers.config import EpisodeSettings
from crabpath_retrievers.graph import Vector, cosines
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Episode
from crabpath_retrievers.storage.packing import pack
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.text import tokens

_RECALLED = 256  # queries whose nearest episode is kept at hand


class Near(NamedTuple):
    """An episode with the cosine of its query and the one that is asked."""

    episode: Episode
    similarity: float


class Success(NamedTuple):
    """The change that remembers a success, and the episode that it adds to where one stands."""

    change: KeepEpisode
    known: Episode | None


class Episodes:
    """Remembers and recalls successes, one collection of vectors per namespace."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: EpisodeSettings
    ) -> None:
        """Keep rows in ``store`` and vectors beside those of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._beside = getattr(index, "beside", None)
        self._open: dict[int, VectorIndex] = {}
        self._recalled: dict[tuple[int, int, bytes], list[str]] = {}

    def recall(self, vector: Vector, clock: Clock) -> dict[str, float]:
        """How strongly past successes speak for documents, in [0, 1], by node id."""
        found: dict[str, float] = {}
        nearest = self.near(vector, clock.key)
        self._keep((clock.key, clock.learned, pack(vector)), nearest)
        for near in nearest:
            strength = self._strength(near.similarity)
            best = max(near.episode.documents.values(), default=1.0)
            for node, credit in near.episode.documents.items():
                found[node] = max(found.get(node, 0.0), strength * credit / best)
        return {node: strength for node, strength in found.items() if strength > 0}

    def _keep(self, asked: tuple[int, int, bytes], nearest: Sequence[Near]) -> None:
        """Spare the feedback that follows a query a second look at the index."""
        if len(self._recalled) >= _RECALLED:
            self._recalled.pop(next(iter(self._recalled)), None)
        self._recalled[asked] = [near.episode.id for near in nearest[:1]]

    def _strength(self, similarity: float) -> float:
        least = self._settings.min_similarity
        return max(0.0, (similarity - least) / (1.0 - least))

    def near(self, vector: Vector, namespace: int) -> list[Near]:
        """The nearest episodes of a namespace, nearest first."""
        if self._beside is None:
            latest = self._store.learned.latest_episodes(namespace, self._settings.scanned)
            return self._nearest(vector, latest)
        ids = self._index(namespace).search(vector, self._settings.neighbours)
        return self._near(vector, namespace, ids)

    def _near(self, vector: Vector, namespace: int, ids: Sequence[str]) -> list[Near]:
        return self._nearest(vector, self._store.learned.episodes(namespace, ids))

    def _nearest(self, vector: Vector, episodes: Sequence[Episode]) -> list[Near]:
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
    ) -> Success:
        """The change that remembers a success: a near-duplicate grows, else a new one begins."""
        digest = hashlib.sha256(f"{namespace}\n{' '.join(tokens(query))}".encode()).hexdigest()[:32]
        known = self._known(vector, clock, digest) if clock.learned else None
        if known is None:
            return Success(KeepEpisode(namespace, digest, query, vector, 1.0, documents), None)
        same = KeepEpisode(namespace, known.id, known.query, known.vector, 1.0, documents)
        return Success(same, known)

    def _known(self, vector: Vector, clock: Clock, digest: str) -> Episode | None:
        """The episode that this success belongs to: a near-duplicate, else that of its words."""
        recalled = self._recalled.get((clock.key, clock.learned, pack(vector)))
        if recalled is None:
            found = self.near(vector, clock.key)
        else:
            # What the retrieval found is still all that there is: nothing was learned since.
            found = self._near(vector, clock.key, recalled)
        if found and found[0].similarity >= self._settings.same:
            return found[0].episode
        of_words = self._store.learned.episodes(clock.key, [digest])
        return next((episode for episode in of_words if episode.id == digest), None)

    def catch_up(self, least: int = 1) -> None:
        """Hand episodes over to the index once ``least`` of them wait; until then they are read.

        Indexing takes an embedded Chroma 30 ms, for one episode or for a hundred.
        """
        if self._store.learned.pile() < least:
            return
        waiting = self._store.learned.unindexed()
        if self._beside is not None:
            for namespace in {namespace for namespace, _ in waiting}:
                of = [episode for key, episode in waiting if key == namespace]
                self._index(namespace).upsert(
                    [episode.id for episode in of],
                    [episode.vector.astype(np.float32) for episode in of],
                    [episode.query for episode in of],
                    [{} for _ in of],
                )
        self._store.apply([EpisodesIndexed(tuple(episode.id for _, episode in waiting))])

    def delete(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of episodes that are gone."""
        if self._beside is not None and ids:
            self._index(namespace).delete(ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        if self._beside is not None:
            index = self._index(namespace)
            self._open.pop(namespace)
            index.drop()  # type: ignore[attr-defined]

    def _index(self, namespace: int) -> VectorIndex:
        if namespace not in self._open:
            assert self._beside is not None  # noqa: S101
            self._open[namespace] = self._beside(f"episodes-{namespace}")
        return self._open[namespace]
