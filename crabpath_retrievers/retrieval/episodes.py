"""Episodes: past queries with the credit of their documents, recalled by similarity.

The documents that similar queries used gain evidence. Only successes count for similar queries
[CVX RFC-013]; a failure counts against a document for the same query alone, as does an outcome
without attribution. Near-duplicate queries share one episode.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crabpath_retrievers.config import EpisodeSettings
from crabpath_retrievers.core.changes import KeepEpisode, MarkIndexed
from crabpath_retrievers.core.graph import Vector, cosines
from crabpath_retrievers.core.text import QueryInformation, hash_question, tokenise
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import StoredEpisode
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.storage.sql_tools import encode_vector
from crabpath_retrievers.vectors.base import CollectionEntry, NamespaceCollections, VectorIndex

_CACHED = 256  # queries whose nearest episode is cached
_LITTLE = 15.0  # nats; the words of a query with less information occur in others by chance


class EpisodeQuery(NamedTuple):
    """A query: its text, its unit vector ``[d]``, and the information of its words."""

    text: str
    vector: Vector
    information: QueryInformation


class EpisodeScore(NamedTuple):
    """Evidence of past turns about a document.

    Attributes:
        alike: Evidence for it from similar but different queries, in [0, 1].
        same: Evidence from the same query, in [-1, 1]; below 0 against it.
    """

    alike: float
    same: float


class EpisodeMatch(NamedTuple):
    """An episode with the cosine of its query and the current one."""

    episode: StoredEpisode
    similarity: float


class EpisodeUpdate(NamedTuple):
    """The change that stores a turn, and the existing episode that it extends, if any."""

    change: KeepEpisode
    known: StoredEpisode | None


class EpisodeMemory:
    """Recalls past turns; one collection of vectors per namespace."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: EpisodeSettings
    ) -> None:
        """Read ``store``, with collections in the store of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._collections = NamespaceCollections(index, "episodes")
        self._nearest_ids: dict[tuple[int, int, int, bytes], list[str]] = {}

    def recall(self, question: EpisodeQuery, clock: Clock) -> dict[str, EpisodeScore]:
        """Evidence about documents by node id; of several episodes the strongest counts."""
        information = _word_information(question)
        scores: dict[str, EpisodeScore] = {}
        nearest = self.near(question.vector, clock.key)
        self._cache(_cache_key(question.vector, clock), nearest)
        for near in nearest:
            for node, score in self._score_documents(near, information).items():
                scores[node] = max(scores.get(node, score), score, key=_magnitude)
        return {node: score for node, score in scores.items() if _magnitude(score)}

    def _score_documents(
        self, near: EpisodeMatch, information: Mapping[str, float]
    ) -> dict[str, EpisodeScore]:
        """Evidence of one episode about its documents."""
        settings, documents = self._settings, near.episode.documents
        share = _shared_information(information, near.episode.query)
        largest = max(map(abs, documents.values()), default=1.0)
        attributed = max(0.0, min(1.0, near.episode.labelled_turns))
        alike = max(
            _scale_above(near.similarity, settings.min_similarity),
            _scale_above(share, settings.min_term_share),
        )
        same = max(
            _scale_above(near.similarity, settings.same_query_similarity),
            _scale_above(share, settings.same_query_term_share),
        )
        return {
            node: EpisodeScore(
                attributed * max(0.0, alike - same) * credit / largest, same * credit / largest
            )
            if credit > 0
            else EpisodeScore(0.0, same * credit / max(1.0, largest))
            for node, credit in documents.items()
        }

    def _cache(self, key: tuple[int, int, int, bytes], nearest: Sequence[EpisodeMatch]) -> None:
        """Cache the nearest episode, for the feedback on this query."""
        if len(self._nearest_ids) >= _CACHED:
            self._nearest_ids.pop(next(iter(self._nearest_ids)), None)
        self._nearest_ids[key] = [near.episode.id for near in nearest[:1]]

    def near(self, vector: Vector, namespace: int) -> list[EpisodeMatch]:
        """The nearest episodes of a namespace, nearest first."""
        if not self._collections.available:
            latest = self._store.learned.latest_episodes(namespace, self._settings.max_scanned)
            return self._rank(vector, latest)
        ids = self._collections.of(namespace).search(vector, self._settings.neighbours)
        return self._read_near(vector, namespace, ids)

    def _read_near(self, vector: Vector, namespace: int, ids: Sequence[str]) -> list[EpisodeMatch]:
        return self._rank(vector, self._store.learned.episodes(namespace, ids))

    def _rank(self, vector: Vector, episodes: Sequence[StoredEpisode]) -> list[EpisodeMatch]:
        if not episodes:
            return []
        similar = cosines([episode.vector for episode in episodes], vector)
        matches = [EpisodeMatch(e, cosine) for e, cosine in zip(episodes, similar, strict=True)]
        return sorted(matches, key=lambda near: -near.similarity)[: self._settings.neighbours]

    def find_episode(
        self, namespace: str, clock: Clock, query: str, vector: Vector
    ) -> StoredEpisode | None:
        """The episode of a turn: that of a near-duplicate query, else of equal words."""
        if not (clock.learned or clock.notes):
            return None
        cached = self._nearest_ids.get(_cache_key(vector, clock))
        if cached is None:
            nearest = self.near(vector, clock.key)
        else:
            # Nothing was learned since the retrieval, so its nearest episode is still the nearest.
            nearest = self._read_near(vector, clock.key, cached)
        if nearest and nearest[0].similarity >= self._settings.duplicate_similarity:
            return nearest[0].episode
        digest = hash_question(namespace, query)
        of_words = self._store.learned.episodes(clock.key, [digest])
        return next((episode for episode in of_words if episode.id == digest), None)

    def catch_up(self, minimum: int = 1) -> None:
        """Index new episodes once there are ``minimum`` of them; until then rows are scanned.

        An embedded Chroma takes 30 ms, for one episode or for a hundred.
        """
        if self._store.learned.count_unindexed_episodes() < minimum:
            return
        unindexed = self._store.learned.get_unindexed_episodes()
        entries = [CollectionEntry(key, e.id, e.vector, e.query) for key, e in unindexed]
        self._collections.upsert(entries)
        self._store.apply([MarkIndexed(episodes=tuple(entry.id for entry in entries))])
        self._collections.delete_gone(
            entries, lambda key, ids: {e.id for e in self._store.learned.episodes(key, ids)}
        )

    def delete(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of deleted episodes."""
        self._collections.delete(namespace, ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        self._collections.forget(namespace)


def _cache_key(vector: Vector, clock: Clock) -> tuple[int, int, int, bytes]:
    """All that the nearest episode depends on; teaching a note may add an episode too."""
    return (clock.key, clock.learned, clock.notes, encode_vector(vector))


def _word_information(question: EpisodeQuery) -> dict[str, float]:
    """Information of each word of a query in nats; an unknown word counts as the rarest one."""
    words, nats = question.information
    known = dict(zip(words, nats.tolist(), strict=True))
    rarest = max(known.values(), default=1.0)
    return {word: known.get(word, rarest) for word in tokenise(question.text)}


def _shared_information(information: Mapping[str, float], query: str) -> float:
    """Share of a query's information that a past query contains, in [0, 1].

    The total counts as at least 15 nats, so that queries with little information share less.
    """
    words = set(tokenise(query))
    both = sum(nats for word, nats in information.items() if word in words)
    return both / max(_LITTLE, sum(information.values()))


def _magnitude(recalled: EpisodeScore) -> float:
    return recalled.alike + abs(recalled.same)


def _scale_above(value: float, threshold: float) -> float:
    """Linear from 0 at ``threshold`` to 1 at 1; clipped, since a cosine may round above 1."""
    return min(1.0, max(0.0, (value - threshold) / (1.0 - threshold)))
