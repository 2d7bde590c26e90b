"""Episodes: past queries with the credit of their documents, recalled by similarity.

Each past turn is a trial of the documents whose use is known, weighted by how alike its query is:
``alike^8 / closest^4``, where ``alike = (similarity + overlap of words) / 2`` and ``closest`` is
that of the most alike query: a kernel (Nadaraya 1964) that is wider where no query is near
(Loftsgaarden & Quesenberry 1965). An outcome without stated use counts for the same query alone
[CVX RFC-013]. A query that is asked again extends its episode. What was right for one product is
not therefore right for its siblings: see :func:`score_turns`.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import EpisodeSettings
from crabpath_retrievers.core.changes import MarkIndexed
from crabpath_retrievers.core.graph import (
    NodeHead,
    Vector,
    compare_vectors,
    stack_vectors,
    stretch_cosine,
)
from crabpath_retrievers.core.language import is_frequent
from crabpath_retrievers.core.text import (
    Floats,
    QueryInformation,
    find_signs,
    hash_question,
    tokenise,
)
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import StoredEpisode
from crabpath_retrievers.storage.read.walk import Clock, VersionCache
from crabpath_retrievers.vectors.base import CollectionEntry, NamespaceCollections, VectorIndex

_CACHED = 4096  # queries whose words are cached
_MAX_SMALL = 4096  # most episodes of a namespace whose vectors stay in the process
_MAX_ALL = 16_384  # most episodes of all namespaces together whose vectors do
_SHARPNESS = 8  # power of the likeness of two queries, as the weight of a past turn
_WIDENING = 4  # power of the likeness of the most alike one, by which that is divided
_LEAST_WEIGHT = 1e-3  # of a past turn; below, its query has nothing in common
_INFERRED = 0.1  # of a trial: an outcome alone does not say which documents were used
_ALIKE, _EQUAL = 0.3, 0.6  # similarity from which texts begin to be alike, and are
_EXCUSE = 2.0  # nats of new words that a nat of old ones excuses
_NATS = 0.2  # of words that a use was not about, and that divide it by e
_FREQUENT = 0.1  # nats of a word that is frequent in its language, at most
_LITTLE = 15.0  # nats; the words of a query with less information occur in others by chance


class EpisodeQuery(NamedTuple):
    """A query: its text, its unit vector ``[d]``, and the information of its words."""

    text: str
    vector: Vector
    information: QueryInformation


class EpisodeScore(NamedTuple):
    """What past turns did with a document, in turns weighted by how alike their queries are.

    Attributes:
        again, passed: Uses and passes by turns of the same query.
        episode, missed: Uses and passes by turns of similar but different queries.
    """

    again: float = 0.0
    passed: float = 0.0
    episode: float = 0.0
    missed: float = 0.0


class PastTurns(NamedTuple):
    """Turns of a past query that bear on the current one.

    Attributes:
        same, weight: Their weights in [0, 1] as turns of the same query, and of a similar one.
        words: Words of the past query.
        stated: Whether the use of documents was stated.
        documents: Credit in [-1, 1] by node id.
    """

    same: float
    weight: float
    words: AbstractSet[str]
    stated: bool
    documents: Mapping[str, float]


class EpisodeMatch(NamedTuple):
    """An episode with the similarity of its query to the current one."""

    episode: StoredEpisode
    similarity: float


class _CachedVectors(NamedTuple):
    """Vectors of a small namespace's episodes.

    Attributes:
        version: Version of the namespace that they belong to.
        rows: Row in the blocks, taken together, by episode id.
        blocks: Unit query vectors, shapes ``[n, d]``, larger ones first; None for a namespace with
            too many. What is added to one matrix copies all of it.
    """

    version: tuple[int, int]
    rows: dict[str, int]
    blocks: tuple[Vector, ...] | None


_NO_VECTORS = _CachedVectors((-1, -1), {}, ())


class EpisodeMemory:
    """Recalls past turns.

    Vectors of small namespaces stay in the process, those of others in a collection each.
    """

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: EpisodeSettings
    ) -> None:
        """Read ``store``, with collections in the store of ``index``; None scans rows."""
        self._store, self._settings = store, settings
        self._collections = NamespaceCollections(index, "episodes")
        self._vectors: dict[int, _CachedVectors] = {}
        self._episodes = VersionCache[str, StoredEpisode]()
        self._gone: dict[int, set[str]] = {}  # episodes whose vectors were found without a row
        self._lock = threading.Lock()

    def recall(self, question: EpisodeQuery, clock: Clock) -> list[PastTurns]:
        """The turns of the nearest queries, nearest first."""
        information = _word_information(question)
        total = sum(information.values())
        nearest = self.near(question.vector, clock)
        signs = find_signs(question.text)
        weighed = [self._weigh(near, information, total, signs) for near in nearest]
        closest = max((alike for _, _, alike in weighed), default=0.0)
        recalled: list[PastTurns] = []
        for near, (same, other, alike) in zip(nearest, weighed, strict=True):
            weight = other * alike**_SHARPNESS / max(closest, _LEAST_WEIGHT) ** _WIDENING
            if same or weight >= _LEAST_WEIGHT:
                stated = near.episode.labelled_turns > 0
                again = same * (1.0 if stated else _INFERRED)
                words = _get_words(near.episode.query)
                recalled.append(PastTurns(again, weight, words, stated, near.episode.documents))
        return recalled

    def _weigh(
        self,
        near: EpisodeMatch,
        information: Mapping[str, float],
        total: float,
        signs: AbstractSet[str],
    ) -> tuple[float, float, float]:
        """How far an episode is of the same query, and of another one, and how alike they are."""
        settings, past = self._settings, _get_words(near.episode.query)
        shared, overlap = _compare_words(information, total, past)
        same = max(
            _scale_above(near.similarity, settings.same_query_similarity),
            _scale_above(shared, settings.same_query_term_share),
        )
        if signs != find_signs(near.episode.query):
            same = 0.0  # "C" and "C#" have the same words, and nearly the same vector
        alike = (max(0.0, near.similarity) + overlap) / 2
        share_labelled = max(0.0, min(1.0, near.episode.labelled_turns))
        return same, (1.0 - same) * share_labelled, alike

    def near(self, vector: Vector, clock: Clock) -> list[EpisodeMatch]:
        """The nearest episodes of a namespace, nearest first; none for a vector of zeros."""
        if not vector.any():
            return []
        namespace, neighbours = clock.key, self._settings.neighbours
        cached = self._read_vectors(clock)
        if cached.blocks is not None:
            if not cached.rows:
                return []
            # Not by BLAS, whose threads wait for each other where all cores are busy.
            parts = [np.einsum("ij,j->i", block, vector) for block in cached.blocks]
            similar = np.concatenate(parts)
            first = max(0, len(similar) - neighbours)
            best = np.argpartition(similar, first)[first:]
            ids = list(cached.rows)
            return self._read_near(vector, clock, [ids[row] for row in best.tolist()])
        if not self._collections.available:
            latest = self._store.learned.latest_episodes(namespace, self._settings.max_scanned)
            return self._rank(vector, latest)
        ids = self._collections.of(namespace).search(vector, neighbours)
        episodes = self._store.learned.episodes(namespace, ids, queued=True)
        if gone := set(ids).difference(episode.id for episode in episodes):
            # Maintenance has no index, and this reader may be older than what is indexed.
            self._gone.setdefault(namespace, set()).update(gone)
        return self._rank(vector, episodes)

    def search_ahead(
        self, clock: Clock, vectors: Sequence[Vector]
    ) -> AbstractContextManager[object]:
        """Search for the nearest indexed episodes of several queries, which are asked inside."""
        if not self._collections.available or self._read_vectors(clock).blocks is not None:
            return nullcontext()
        own = self._collections.of(clock.key)
        return own.search_ahead(vectors, self._settings.neighbours)

    def _read_vectors(self, clock: Clock) -> _CachedVectors:
        """The vectors of a small namespace, read again as far as its version is new."""
        version = (clock.learned, clock.notes)
        cached = self._vectors.get(clock.key, _NO_VECTORS)
        # Once there are too many, their ids are not read again at every lesson.
        if cached.version != version and cached.blocks is not None:
            ids = self._store.learned.episode_ids(clock.key, _MAX_SMALL + 1)
            new = sorted(set(ids) - cached.rows.keys())
            if len(ids) > _MAX_SMALL:
                cached = _CachedVectors(version, {}, None)
            elif not new and len(ids) == len(cached.rows):
                cached = cached._replace(version=version)
            else:
                cached = self._extend(cached, version, clock.key, ids, new)
        with self._lock:
            self._vectors.pop(clock.key, None)
            self._vectors[clock.key] = cached  # the last is the one used last
            total = sum(len(each.rows) for each in self._vectors.values())
            while len(self._vectors) > 1 and total > _MAX_ALL:
                total -= len(self._vectors.pop(next(iter(self._vectors))).rows)
        return cached

    def _extend(
        self,
        cached: _CachedVectors,
        version: tuple[int, int],
        namespace: int,
        ids: Sequence[str],
        new: Sequence[str],
    ) -> _CachedVectors:
        """The vectors of these episodes; those of the ``new`` ones are read."""
        added = self._store.learned.episode_vectors(namespace, new)
        blocks, rows = list(cached.blocks or ()), cached.rows.copy()
        if len(ids) < len(rows) + len(new):  # some were deleted
            kept = [episode for episode in ids if episode in rows]
            places = [rows[episode] for episode in kept]
            blocks = [np.concatenate(blocks)[places]] if kept else []
            rows = {episode: row for row, episode in enumerate(kept)}
        if added:
            rows |= {episode: len(rows) + row for row, episode in enumerate(added)}
            blocks.append(stack_vectors([*added.values()]))
        while len(blocks) > 1 and len(blocks[-2]) <= len(blocks[-1]):
            blocks[-2:] = [np.concatenate(blocks[-2:])]
        return _CachedVectors(version, rows, tuple(blocks))

    def _read_near(self, vector: Vector, clock: Clock, ids: Sequence[str]) -> list[EpisodeMatch]:
        def fetch(new: list[str]) -> dict[str, StoredEpisode]:
            return {e.id: e for e in self._store.learned.episodes(clock.key, new)}

        return self._rank(vector, [*self._episodes.get_rows(clock, ids, fetch).values()])

    def _rank(self, vector: Vector, episodes: Sequence[StoredEpisode]) -> list[EpisodeMatch]:
        vectors = [episode.vector for episode in episodes]
        similar = compare_vectors(vectors, vector, self._store.stretch)
        matches = [EpisodeMatch(e, near) for e, near in zip(episodes, similar, strict=True)]
        matches.sort(key=lambda near: (-near.similarity, near.episode.id))
        return matches[: self._settings.neighbours]

    def find_episode(self, namespace: str, clock: Clock, query: str) -> StoredEpisode | None:
        """The episode of a query, which may be written with other capitals and marks."""
        if not (clock.learned or clock.notes):
            return None
        found = self._store.learned.episodes(clock.key, [hash_question(namespace, query)])
        return found[0] if found else None

    def catch_up(self, minimum: int = 1) -> None:
        """Index new episodes once there are ``minimum`` of them; until then rows are scanned.

        An embedded Chroma takes 30 ms, for one episode or for a hundred. Vectors of episodes that
        maintenance has deleted are deleted, too.
        """
        while self._gone:
            namespace, ids = self._gone.popitem()
            kept = {e.id for e in self._store.learned.episodes(namespace, sorted(ids))}
            self._collections.delete(namespace, sorted(ids - kept))
        if self._store.learned.count_unindexed_episodes() < minimum:
            return
        unindexed = self._store.learned.get_unindexed_episodes()
        entries = [CollectionEntry(key, e.id, e.vector, e.query) for key, e in unindexed]
        self._collections.upsert(entries)
        self._store.apply([MarkIndexed(episodes=tuple(entry.id for entry in entries))])
        self._collections.delete_gone(
            entries, lambda key, ids: {e.id for e in self._store.learned.episodes(key, ids)}
        )

    def reopen(self) -> None:
        """Read all episodes and vectors again, for instance after the embedder was changed."""
        self._collections.reopen()
        with self._lock:
            self._vectors, self._gone = {}, {}
        self._episodes = VersionCache[str, StoredEpisode]()

    def delete(self, namespace: int, ids: Sequence[str]) -> None:
        """Delete the vectors of deleted episodes."""
        self._collections.delete(namespace, ids)

    def forget(self, namespace: int) -> None:
        """Delete the vectors of a namespace, and what is remembered of it."""
        self._episodes.forget(namespace)
        self._collections.forget(namespace)


def score_turns(
    recalled: Sequence[PastTurns],
    heads: Sequence[NodeHead],
    asked: AbstractSet[str],
    information: QueryInformation,
    stretch: float,
) -> dict[str, EpisodeScore]:
    """Uses and passes of candidates by node id, as far as they carry over to the current query.

    A use says less where the current query asks for something else: for words that the past one
    lacks, that the document lacks too, and that texts like it have. Words of the past query that
    the document lacked in the same way, and was used all the same, excuse twice as many. Nothing
    excuses another name: words of a title that the current query has whole, in place of words of
    the document's own title, which the past query had. A pass says less where the current query has
    the document's title, and the past one had not.

    Args:
        recalled: Turns of past queries.
        heads: The candidates; other documents get no score.
        asked: Words of the current query.
        information: Those words and the words of the past queries, with their information.
        stretch: Of the embedder.
    """
    if not heads:
        return {}
    used = {node for turns in recalled for node, credit in turns.documents.items() if credit > 0}
    rows = [row for row, head in enumerate(heads) if head.id in used]
    titles = [_get_words(head.title) for head in heads]
    places = {word: place for place, word in enumerate(information.words)}
    own = _mark(titles, places)
    asked_for = own * np.array([title <= asked for title in titles])[:, None]
    lacking, names = _measure_lacking(heads, rows, asked_for, information, stretch)
    now, past = _mark([asked], places), _mark([turns.words for turns in recalled], places)
    new, gone = now * (1.0 - past), past * (1.0 - now)
    # An outcome alone does not show that the document was used without them.
    excused = past * np.array([_EXCUSE * turns.stated for turns in recalled])[:, None]
    more = (new - excused) @ lacking.T
    renamed = np.minimum(new @ names.T, (gone * information.nats) @ own[rows].T)
    shares = np.exp(-np.maximum(0.0, np.maximum(more, renamed)) / _NATS).tolist()
    passed = np.exp((new * information.nats) @ asked_for.T / -_NATS).tolist()
    sums = {head.id: [0.0, 0.0, 0.0, 0.0] for head in heads}
    order, ranks = {node: i for i, node in enumerate(sums)}, {row: i for i, row in enumerate(rows)}
    for turns, share_by_rank, passed_by_row in zip(recalled, shares, passed, strict=True):
        for node, credit in turns.documents.items():
            if node not in sums:
                continue
            row = order[node]
            uses, passes = 0.0, -credit * passed_by_row[row]
            if credit > 0:
                share = share_by_rank[ranks[row]]
                # Where use was only inferred, the rest of the trial speaks against the document.
                rest = 0.0 if turns.stated else max(0.0, 1.0 - credit)
                uses, passes = share * credit, share * rest
            score = sums[node]
            score[0] += turns.same * uses
            score[1] += turns.same * passes
            score[2] += turns.weight * uses
            score[3] += turns.weight * passes
    return {node: EpisodeScore(*score) for node, score in sums.items() if any(score)}


def _mark(texts: Sequence[AbstractSet[str]], places: Mapping[str, int]) -> Floats:
    """Which texts have which words, 1 or 0, shape ``[n, W]``; words by their columns."""
    marked = np.zeros((len(texts), len(places)))
    for row, text in zip(marked, texts, strict=True):
        row[[places[word] for word in places.keys() & text]] = 1.0
    return marked


def _measure_lacking(
    heads: Sequence[NodeHead],
    rows: Sequence[int],
    names: Floats,
    information: QueryInformation,
    stretch: float,
) -> tuple[Floats, Floats]:
    """Information in nats of words that candidates lack and texts like them have.

    Args:
        heads: All candidates.
        rows: Those that are measured.
        names: 1 for each word of the title of a candidate that the query names, else 0.
        information: The words.
        stretch: Of the embedder.

    Returns:
        A row for each of them, a column for each word: that a text like it has, and that the name
        of a text like it has; 0 for a word that the candidate has, or that only unlike texts have.
    """
    if not rows:
        nothing = np.zeros((0, len(information.words)))
        return nothing, nothing
    has = information.find_words([head.terms for head in heads])
    vectors = stack_vectors([head.vector for head in heads])
    near = stretch_cosine(vectors[rows] @ vectors.T, stretch)
    alike = np.clip((near - _ALIKE) / (_EQUAL - _ALIKE), 0.0, 1.0)
    lacks = (1.0 - has[rows]) * information.nats
    lacking: Floats = lacks * np.minimum(1.0, alike @ has)
    return lacking, lacks * np.minimum(1.0, alike @ names)


def _word_information(question: EpisodeQuery) -> dict[str, float]:
    """Information of each word of a query in nats; an unknown word counts as the rarest one.

    Of "How do I …" some thousand texts tell how little it says, but few texts do not.
    """
    words, nats = question.information
    known = dict(zip(words, nats.tolist(), strict=True))
    rarest = max(known.values(), default=1.0)
    return {
        word: min(known.get(word, rarest), _FREQUENT if is_frequent(word) else math.inf)
        for word in tokenise(question.text)
    }


@lru_cache(maxsize=_CACHED)
def _get_words(text: str) -> frozenset[str]:
    """The distinct words of a query or a title."""
    return frozenset(tokenise(text))


def _compare_words(
    information: Mapping[str, float], total: float, words: AbstractSet[str]
) -> tuple[float, float]:
    """Share of a query's information that a past query contains, and their overlap, in [0, 1].

    For the share the total counts as at least 15 nats, so that queries with little information
    share less. The overlap is the geometric mean of the shares of their words that both have; the
    words of the query count by their information, so that phrases that many questions use make
    none alike.

    Args:
        information: Information of the query's words, in nats.
        total: That of all of them.
        words: Words of the past query.
    """
    both = words & information.keys()
    if not both:
        return 0.0, 0.0
    common = sum(information[word] for word in both)
    return common / max(_LITTLE, total), math.sqrt(common / total * len(both) / len(words))


def _scale_above(value: float, threshold: float) -> float:
    """Linear from 0 at ``threshold`` to 1 at 1; clipped, since a similarity may round above 1."""
    return min(1.0, max(0.0, (value - threshold) / (1.0 - threshold)))
