"""Episodes: turns that are remembered by their query, with what became of their documents.

What a similar question used comes again. What the same question did not use makes room for others:
only wins speak for documents (document 004, E7d), and nothing is held against them elsewhere.
A turn of which nobody said what it used speaks to the same question and to no other one.
Near-duplicates count as one.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from crabpath_retrievers.changes import EpisodesIndexed, KeepEpisode
from crabpath_retrievers.config import EpisodeSettings
from crabpath_retrievers.graph import Vector, cosines
from crabpath_retrievers.seeds.beside import Beside, Entry
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Episode
from crabpath_retrievers.storage.packing import pack
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.terms import Information
from crabpath_retrievers.text import question_id, tokens

_RECALLED = 256  # queries whose nearest episode is kept at hand
_LITTLE = 15.0  # nats; a question that asks for less is found in many others by chance


class Question(NamedTuple):
    """What is asked: its text, its unit vector ``[d]``, and what its words tell."""

    text: str
    vector: Vector
    information: Information


class Recalled(NamedTuple):
    """What past turns say of a document.

    Attributes:
        alike: How strongly questions that are merely similar speak for it, in [0, 1].
        same: How strongly the same question does, in [-1, 1]; below 0 it did not use it.
    """

    alike: float
    same: float


class Near(NamedTuple):
    """An episode with the cosine of its query and the one that is asked."""

    episode: Episode
    similarity: float


class Remembered(NamedTuple):
    """The change that remembers a turn, and the episode that it adds to where one stands."""

    change: KeepEpisode
    known: Episode | None


class Episodes:
    """Remembers and recalls turns, one collection of vectors per namespace."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: EpisodeSettings
    ) -> None:
        """Keep rows in ``store`` and vectors beside those of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._beside = Beside(index, "episodes")
        self._recalled: dict[tuple[int, int, int, bytes], list[str]] = {}

    def recall(self, question: Question, clock: Clock) -> dict[str, Recalled]:
        """What past turns say of documents, by node id; of several the loudest counts."""
        asked = _nats(question)
        found: dict[str, Recalled] = {}
        nearest = self.near(question.vector, clock.key)
        self._keep(_asked(question.vector, clock), nearest)
        for near in nearest:
            for node, said in self._said(near, asked).items():
                found[node] = max(found.get(node, said), said, key=_loudness)
        return {node: said for node, said in found.items() if _loudness(said)}

    def _said(self, near: Near, asked: Mapping[str, float]) -> dict[str, Recalled]:
        """What one episode says about its documents."""
        bars, documents = self._settings, near.episode.documents
        share = _share(asked, near.episode.query)
        most = max(map(abs, documents.values()), default=1.0)
        told = max(0.0, min(1.0, near.episode.told))
        alike = max(
            _above(near.similarity, bars.min_similarity), _above(share, bars.min_term_share)
        )
        same = max(
            _above(near.similarity, bars.same_query_similarity),
            _above(share, bars.same_query_term_share),
        )
        return {
            node: Recalled(told * max(0.0, alike - same) * credit / most, same * credit / most)
            if credit > 0
            else Recalled(0.0, same * credit / max(1.0, most))
            for node, credit in documents.items()
        }

    def _keep(self, asked: tuple[int, int, int, bytes], nearest: Sequence[Near]) -> None:
        """Spare the feedback that follows a query a second look at the index."""
        if len(self._recalled) >= _RECALLED:
            self._recalled.pop(next(iter(self._recalled)), None)
        self._recalled[asked] = [near.episode.id for near in nearest[:1]]

    def near(self, vector: Vector, namespace: int) -> list[Near]:
        """The nearest episodes of a namespace, nearest first."""
        if not self._beside.kept:
            latest = self._store.learned.latest_episodes(namespace, self._settings.max_scanned)
            return self._nearest(vector, latest)
        ids = self._beside.of(namespace).search(vector, self._settings.neighbours)
        return self._near(vector, namespace, ids)

    def _near(self, vector: Vector, namespace: int, ids: Sequence[str]) -> list[Near]:
        return self._nearest(vector, self._store.learned.episodes(namespace, ids))

    def _nearest(self, vector: Vector, episodes: Sequence[Episode]) -> list[Near]:
        if not episodes:
            return []
        similar = cosines([episode.vector for episode in episodes], vector)
        found = [Near(e, cosine) for e, cosine in zip(episodes, similar, strict=True)]
        return sorted(found, key=lambda near: -near.similarity)[: self._settings.neighbours]

    def known(self, namespace: str, clock: Clock, query: str, vector: Vector) -> Episode | None:
        """The episode that a turn belongs to: a near-duplicate, else that of its words."""
        if not (clock.learned or clock.notes):
            return None
        recalled = self._recalled.get(_asked(vector, clock))
        if recalled is None:
            found = self.near(vector, clock.key)
        else:
            # What the retrieval found is still all that there is: nothing was learned since.
            found = self._near(vector, clock.key, recalled)
        if found and found[0].similarity >= self._settings.duplicate_similarity:
            return found[0].episode
        digest = question_id(namespace, query)
        of_words = self._store.learned.episodes(clock.key, [digest])
        return next((episode for episode in of_words if episode.id == digest), None)

    def catch_up(self, least: int = 1) -> None:
        """Hand episodes over to the index once ``least`` of them wait; until then they are read.

        Indexing takes an embedded Chroma 30 ms, for one episode or for a hundred.
        """
        if self._store.learned.pile() < least:
            return
        waiting = self._store.learned.unindexed()
        entries = [Entry(key, e.id, e.vector, e.query) for key, e in waiting]
        self._beside.upsert(entries)
        self._store.apply([EpisodesIndexed(tuple(entry.id for entry in entries))])
        self._beside.delete_gone(
            entries, lambda key, ids: {e.id for e in self._store.learned.episodes(key, ids)}
        )

    def delete(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of episodes that are gone."""
        self._beside.delete(namespace, ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace."""
        self._beside.forget(namespace)


def _asked(vector: Vector, clock: Clock) -> tuple[int, int, int, bytes]:
    """What the nearest episode depends on; a note may come with one, and teaches no lesson."""
    return (clock.key, clock.learned, clock.notes, pack(vector))


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


def _loudness(recalled: Recalled) -> float:
    return recalled.alike + abs(recalled.same)


def _above(value: float, least: float) -> float:
    """From 0 at ``least`` to 1 at 1; rounding may carry a cosine beyond that."""
    return min(1.0, max(0.0, (value - least) / (1.0 - least)))
