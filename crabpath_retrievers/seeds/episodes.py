"""Episodes: turns that are remembered by their query, with what became of their documents.

What a similar question used comes again. What the same question did not use makes room for others:
only wins speak for documents (document 004, E7d), and nothing is held against them elsewhere.
Near-duplicates count as one.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.changes import EpisodesIndexed, KeepEpisode
from crabpath_retrievers.config import EpisodeSettings
from crabpath_retrievers.graph import Vector, cosines
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Episode
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.terms import Information
from crabpath_retrievers.text import tokens

_LITTLE = 15.0  # nats; a question that asks for less is found in many others by chance


class Question(NamedTuple):
    """What is asked: its text, its unit vector ``[d]``, and what its words tell."""

    text: str
    vector: Vector
    information: Information


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
        self._beside = getattr(index, "beside", None)
        self._open: dict[int, VectorIndex] = {}

    def recall(self, question: Question, clock: Clock) -> dict[str, float]:
        """How strongly past turns speak for documents or against them, in [-1, 1], by node id.

        A document counts as what the turn says loudest that speaks of it.
        """
        asked = _nats(question)
        found: dict[str, float] = {}
        for near in self.near(question.vector, clock.key):
            share = _share(asked, near.episode.query)
            documents = near.episode.documents
            most = max(map(abs, documents.values()), default=1.0)
            for node, credit in documents.items():
                bar = self._settings.min_similarity, self._settings.min_share
                if credit < 0:
                    bar = self._settings.same_question, self._settings.same_question
                strength = max(_above(near.similarity, bar[0]), _above(share, bar[1]))
                said = strength * credit / most
                found[node] = max(found.get(node, 0.0), said, key=abs)
        return {node: said for node, said in found.items() if said}

    def near(self, vector: Vector, namespace: int) -> list[Near]:
        """The nearest episodes of a namespace, nearest first."""
        if self._beside is None:
            episodes = self._store.learned.latest_episodes(namespace, self._settings.scanned)
        else:
            ids = self._index(namespace).search(vector, self._settings.neighbours)
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


def _nats(question: Question) -> dict[str, float]:
    """What each word of a question tells, in nats; unknown words tell as much as the rarest."""
    words, nats = question.information
    known = dict(zip(words, nats.tolist(), strict=True))
    rarest = max(known.values(), default=1.0)
    return {word: known.get(word, rarest) for word in tokens(question.text)}


def _share(asked: Mapping[str, float], query: str) -> float:
    """Share in [0, 1] of what is asked that a past query asked too; less where little is asked."""
    words = set(tokens(query))
    both = sum(nats for word, nats in asked.items() if word in words)
    return both / max(_LITTLE, sum(asked.values()))


def _above(value: float, least: float) -> float:
    """From 0 at ``least`` to 1 at 1."""
    return max(0.0, (value - least) / (1.0 - least))
