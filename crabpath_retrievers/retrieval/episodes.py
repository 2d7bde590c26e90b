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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import EpisodeSettings, NoteSettings
from crabpath_retrievers.core.changes import KeepEpisode
from crabpath_retrievers.core.language import is_frequent
from crabpath_retrievers.core.records import (
    NodeHead,
    Vector,
    compare_vectors,
    stack_vectors,
    stretch_cosine,
)
from crabpath_retrievers.core.text import (
    Floats,
    QueryInformation,
    find_signs,
    fold_plural,
    fold_plurals,
    hash_question,
    is_opposed,
    list_distinct_words,
    split_words,
)
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.read.learned import StoredEpisode
from crabpath_retrievers.storage.read.notes import NoteVector
from crabpath_retrievers.storage.read.walk import Clock, VersionCache
from crabpath_retrievers.storage.sql_tools import decode_vector, encode_vector
from crabpath_retrievers.storage.write.nodes import mark_indexed
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
_COUNTERPART = 0.05  # difference in similarity by which one counterpart is e times another
_NAME = 2.0  # nats of another name
_STEP = 0.4  # cosine of two steps by which another document divides a use by e
_TELLING = 1.0  # nats of a word that is not frequent in its language, at least
_TINY = 1e-6  # product of squared lengths; equal texts or queries make no step
_LITTLE = 15.0  # nats; the words of a query with less information occur in others by chance


class EpisodeQuery(NamedTuple):
    """A query: its text, its unit vector ``[d]``, and the information of its words."""

    text: str
    vector: Vector
    information: QueryInformation


class EpisodeScore(NamedTuple):
    """Past uses and passes of a document, weighted by how alike the queries are.

    Attributes:
        again, passed: Uses and passes by turns of the same query.
        episode, missed: Uses and passes by turns of similar but different queries.
        counterpart: Uses, by turns of similar queries, of documents whose counterpart it is.
    """

    again: float = 0.0
    passed: float = 0.0
    episode: float = 0.0
    missed: float = 0.0
    counterpart: float = 0.0


class PastTurns(NamedTuple):
    """Past turns with one query, and their weights for the current query.

    Attributes:
        same, weight: Their weights in [0, 1] as turns of the same query, and of a similar one.
        words: Words of the past query.
        stated: Whether the use of documents was stated.
        documents: Credit in [-1, 1] by node id.
        vector: Unit vector of the past query, shape ``[d]``.
    """

    same: float
    weight: float
    words: frozenset[str]
    stated: bool
    documents: Mapping[str, float]
    vector: Vector


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


class EpisodeMemory(NamespaceCollections):
    """Recalls past turns.

    Vectors of small namespaces stay in the process, those of others in a collection each.
    """

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: EpisodeSettings
    ) -> None:
        """Keep the store, and ``index`` for collections of vectors; None scans rows instead."""
        super().__init__(index, "episodes")
        self._store, self._settings = store, settings
        self._vectors: dict[int, _CachedVectors] = {}
        self._episodes = VersionCache[str, StoredEpisode]()
        self._gone: dict[int, set[str]] = {}  # episodes whose vectors were found without a row
        self._lock = threading.Lock()

    def recall(self, read: Reader, question: EpisodeQuery, clock: Clock) -> list[PastTurns]:
        """Recall the past turns of the queries nearest to a question, nearest first.

        Queries that have next to nothing in common with the question are left out.
        """
        information = _word_information(question)
        total = sum(information.values())
        nearest = self.near(read, question.vector, clock)
        weighed = [
            self._weigh(episode, near, information, total, question.text)
            for episode, near in nearest
        ]
        closest = max((alike for _, _, alike in weighed), default=0.0)
        recalled: list[PastTurns] = []
        for (episode, _), (same, other, alike) in zip(nearest, weighed, strict=True):
            weight = other * alike**_SHARPNESS / max(closest, _LEAST_WEIGHT) ** _WIDENING
            if same or weight >= _LEAST_WEIGHT:
                stated = episode.labelled_turns > 0
                again = same * (1.0 if stated else _INFERRED)
                words = _get_words(episode.query)
                past = episode.documents, episode.vector.astype(np.float32)
                recalled.append(PastTurns(again, weight, words, stated, *past))
        return recalled

    def _weigh(
        self,
        episode: StoredEpisode,
        similarity: float,
        information: Mapping[str, float],
        total: float,
        text: str,
    ) -> tuple[float, float, float]:
        """Weigh an episode as one of the same and of a similar query; also return the likeness.

        Args:
            information: Information of the question's words, in nats.

        Returns:
            Three numbers in [0, 1]: both weights, and the mean of similarity and overlap of words.
        """
        settings, past = self._settings, _get_words(episode.query)
        shared, overlap = _compare_words(information, total, past)
        same = max(
            _scale_above(similarity, settings.same_query_similarity),
            _scale_above(shared, settings.same_query_term_share),
        )
        if _get_signs(text) != _get_signs(episode.query):
            same = 0.0  # "C" and "C#" have the same words, and nearly the same vector
        alike = (max(0.0, similarity) + overlap) / 2
        other = (1.0 - same) * max(0.0, min(1.0, episode.labelled_turns))
        if (same or other) and is_opposed(text, episode.query):
            same, other = 0.0, other * (1.0 - overlap)
        return same, other, alike

    def near(self, read: Reader, vector: Vector, clock: Clock) -> list[tuple[StoredEpisode, float]]:
        """Find the nearest episodes of a namespace with their similarities, nearest first.

        If ``vector`` is zero, there are none.
        """
        if not vector.any():
            return []
        namespace, neighbours = clock.key, self._settings.neighbours
        cached = self._read_vectors(read, clock)
        if cached.blocks is not None:
            if not cached.rows:
                return []
            # Not by BLAS, whose threads wait for each other where all cores are busy.
            parts = [np.einsum("ij,j->i", block, vector) for block in cached.blocks]
            similar = np.concatenate(parts)
            first = max(0, len(similar) - neighbours)
            best = np.argpartition(similar, first)[first:]
            ids = list(cached.rows)
            near = self._episodes.get_rows(
                clock,
                [ids[row] for row in best.tolist()],
                lambda new: {e.id: e for e in read.learned.episodes(namespace, new)},
            )
            return self._rank(read, vector, [*near.values()])
        if not self.available:
            latest = read.learned.latest_episodes(namespace, self._settings.max_scanned)
            return self._rank(read, vector, latest)
        ids = self.of(namespace).on(read).search(vector, neighbours)
        episodes = read.learned.episodes(namespace, ids, queued=True)
        if gone := set(ids).difference(episode.id for episode in episodes):
            # Maintenance has no index, and this reader may be older than what is indexed.
            self._gone.setdefault(namespace, set()).update(gone)
        return self._rank(read, vector, episodes)

    def search_ahead(
        self, read: Reader, clock: Clock, vectors: Sequence[Vector]
    ) -> AbstractContextManager[object]:
        """Search at once for the episodes nearest to several queries, given by vector.

        Queries asked in the block use the results. If episodes are not in an index, nothing is
        searched.
        """
        if not self.available or self._read_vectors(read, clock).blocks is not None:
            return nullcontext()
        own = self.of(clock.key)
        return own.search_ahead(vectors, self._settings.neighbours)

    def _read_vectors(self, read: Reader, clock: Clock) -> _CachedVectors:
        """Read the vectors of a small namespace; cached ones are not read again."""
        version = (clock.learned, clock.notes)
        cached = self._vectors.get(clock.key, _NO_VECTORS)
        # Once there are too many, their ids are not read again at every lesson.
        if cached.version != version and cached.blocks is not None:
            ids = read.learned.episode_ids(clock.key, _MAX_SMALL + 1)
            if len(ids) > _MAX_SMALL:
                cached = _CachedVectors(version, {}, None)
            else:
                new, gone = set(ids) - cached.rows.keys(), cached.rows.keys() - set(ids)
                added = read.learned.episode_vectors(clock.key, sorted(new)) if new else {}
                cached = _extend(cached, version, added, gone)
        with self._lock:
            self._vectors.pop(clock.key, None)
            self._vectors[clock.key] = cached  # the last is the one used last
            total = sum(len(each.rows) for each in self._vectors.values())
            while len(self._vectors) > 1 and total > _MAX_ALL:
                total -= len(self._vectors.pop(next(iter(self._vectors))).rows)
        return cached

    def follow_lesson(self, before: Clock, kept: Sequence[KeepEpisode]) -> None:
        """Keep what is cached for ``before``, to which a lesson of this process added ``kept``.

        As :meth:`VersionCache.follow_lesson`.
        """
        self._episodes.follow_lesson(before, [change.id for change in kept])
        with self._lock:
            cached = self._vectors.get(before.key, _NO_VECTORS)
            new = [change for change in kept if change.id not in cached.rows]
            added = {one.id: decode_vector(encode_vector(one.vector)) for one in new}
            is_known = cached.version == (before.learned, before.notes)
            is_small = len(cached.rows) + len(added) <= _MAX_SMALL
            if is_known and is_small and cached.blocks is not None:
                version = (before.learned + 1, before.notes)
                self._vectors[before.key] = _extend(cached, version, added)

    def _rank(
        self, read: Reader, vector: Vector, episodes: Sequence[StoredEpisode]
    ) -> list[tuple[StoredEpisode, float]]:
        vectors = [episode.vector for episode in episodes]
        similar = compare_vectors(vectors, vector, read.stretch)
        matches = [*zip(episodes, similar, strict=True)]
        matches.sort(key=lambda match: (-match[1], match[0].id))
        return matches[: self._settings.neighbours]

    def find_episode(
        self, read: Reader, namespace: str, clock: Clock, query: str
    ) -> StoredEpisode | None:
        """Find the episode of a query; None without one.

        Capitals and marks of the query do not matter.
        """
        if not (clock.learned or clock.notes):
            return None
        found = read.learned.episodes(clock.key, [hash_question(namespace, query)])
        return found[0] if found else None

    def catch_up(self, minimum: int = 1) -> None:
        """Index new episodes once there are ``minimum`` of them; until then rows are scanned.

        An embedded Chroma takes 30 ms, for one episode or for a hundred. Vectors of episodes that
        maintenance has deleted are deleted, too. A process without the index does nothing: another
        one indexes.
        """
        if not self.has_index:
            return
        while self._gone:
            namespace, ids = self._gone.popitem()
            kept = {e.id for e in self._store.learned.episodes(namespace, sorted(ids))}
            self.delete(self._store, namespace, sorted(ids - kept))
        if self._store.learned.count_unindexed_episodes() < minimum:
            return
        unindexed = self._store.learned.get_unindexed_episodes()
        entries = [CollectionEntry(key, e.id, e.vector, e.query) for key, e in unindexed]
        self.fill(
            self._store,
            entries,
            partial(self._store.write, mark_indexed, episodes=[entry.id for entry in entries]),
            lambda key, ids: {e.id for e in self._store.learned.episodes(key, ids)},
        )

    def reopen(self) -> None:
        """Read all episodes and vectors again, for instance after the embedder was changed."""
        super().reopen()
        with self._lock:
            self._vectors, self._gone = {}, {}
        self._episodes = VersionCache[str, StoredEpisode]()

    def forget(self, namespace: int) -> None:
        """Delete the vectors and caches of a namespace."""
        self._episodes.forget(namespace)
        super().forget(namespace)


def _extend(
    cached: _CachedVectors,
    version: tuple[int, int],
    added: Mapping[str, Vector],
    gone: Collection[str] = (),
) -> _CachedVectors:
    """Add vectors in half precision, by id, to cached ones, and drop those of ``gone`` episodes."""
    blocks, rows = list(cached.blocks or ()), cached.rows.copy()
    if gone:
        kept = [episode for episode in rows if episode not in gone]
        blocks = [np.concatenate(blocks)[[rows[episode] for episode in kept]]] if kept else []
        rows = {episode: row for row, episode in enumerate(kept)}
    if added:
        rows |= {episode: len(rows) + row for row, episode in enumerate(added)}
        blocks.append(stack_vectors([*added.values()]))
    while len(blocks) > 1 and len(blocks[-2]) <= len(blocks[-1]):
        blocks[-2:] = [np.concatenate(blocks[-2:])]
    return _CachedVectors(version, rows, tuple(blocks))


def score_turns(
    recalled: Sequence[PastTurns],
    heads: Sequence[NodeHead],
    question: EpisodeQuery,
    information: QueryInformation,
    stretch: float,
) -> dict[str, EpisodeScore]:
    """Compute uses and passes of candidates, by node id, as far as they apply to the query.

    A pass is a return of a document that was not used. A use says less if the current query asks
    for something else: for words that the past query lacks, that the document lacks too, and that
    texts like it have. Words of the past query that the document lacked in the same way, and was
    used all the same, excuse twice as many. Nothing excuses another name: words of a title that the
    current query has whole, instead of words of the document's own title, which the past query had;
    or a number or capitalised word instead of a word of the document. A pass says less if the
    current query has the document's title, or such a name that the document has, and the past query
    had not.

    Uses and passes say less if one document has overtaken another, as :func:`_weigh_steps` finds. A
    pass also says less if the current query has new words that the passed document has and the used
    one lacks.

    As far as a use does not count for its document, it counts for the document's counterparts: the
    page of this product that is to this question what the document was to the past one.

    Args:
        heads: The candidates; other documents get no score.
        information: Words of the current and the past queries, with their information.
    """
    if not (heads and recalled):
        return {}
    compare = partial(stretch_cosine, stretch=stretch)
    rows = {head.id: row for row, head in enumerate(heads)}
    vectors = stack_vectors([head.vector for head in heads]).astype(np.float64)
    near = compare(vectors @ vectors.T)
    words = _carry_words(recalled, heads, question, information, near)
    shares, passed = words.shares, words.passed
    queries = np.array([turns.vector for turns in recalled])
    to_past, to_query = compare(queries @ vectors.T), compare(vectors @ question.vector)
    shifts = compare(queries @ question.vector)
    sums, counterparts = np.zeros((len(heads), 4)), np.zeros((len(recalled), len(heads)))
    for at, turns in enumerate(recalled):
        known = {rows[node]: credit for node, credit in turns.documents.items() if node in rows}
        used = [row for row, credit in known.items() if credit > 0]
        if used and words.is_reworded[at]:  # else it is the question in fewer words
            steps = _weigh_steps(to_past[at], to_query, near[used], used, shifts[at])
            anew = (words.new[at] * (1.0 - words.has[used])) @ words.has.T / _NATS
            passed[at] *= np.exp(-(steps + anew).max(axis=0))
            shares[at, used] *= np.exp(-steps.max(axis=1))
        for row, credit in known.items():
            uses, passes = 0.0, -credit * passed[at, row]
            if credit > 0:
                share = shares[at, row]
                # Where use was only inferred, the rest of the trial speaks against the document.
                rest = 0.0 if turns.stated else max(0.0, 1.0 - credit)
                uses, passes = share * credit, share * rest
                asked_for = np.maximum(0.0, words.missing[at] - words.excuses[at, row])
                fitting = np.exp(-asked_for / _NATS)
                found = _find_counterparts(near[row], to_query, to_past[at], row, shifts[at])
                counterparts[at] += turns.weight * credit * (1.0 - share) * fitting * found
            same = (turns.same * uses, turns.same * passes)
            sums[row] += (*same, turns.weight * uses, turns.weight * passes)
    # One report may be wrong: what no second one says is left out. And what was said about this
    # very question needs no analogy.
    agreed = counterparts.sum(axis=0) - counterparts.max(axis=0)
    scores = np.column_stack([sums, agreed * (1.0 - max(turns.same for turns in recalled))])
    return {
        node: EpisodeScore(*scores[row].tolist()) for node, row in rows.items() if any(scores[row])
    }


class _CarriedWords(NamedTuple):
    """Shares of turns of ``P`` past queries that carry over to the current one for ``n`` texts.

    Attributes:
        shares, passed: Shares of a use and of a pass that carry over, shape ``[P, n]``.
        missing, excuses: Nats of words that the texts lack and that texts like them have, shape
            ``[P, n]``: new ones, and those of the past query that excuse as many.
        new: Nats of words that the current query has anew and that tell, shape ``[P, Q]``.
        has: Which texts contain which words, 1 or 0, shape ``[n, Q]``.
        is_reworded: Whether the current query has words that a past one lacks; of each past one.
    """

    shares: Floats
    passed: Floats
    missing: Floats
    excuses: Floats
    new: Floats
    has: Floats
    is_reworded: Sequence[bool]


def _carry_words(
    recalled: Sequence[PastTurns],
    heads: Sequence[NodeHead],
    question: EpisodeQuery,
    information: QueryInformation,
    near: Floats,
) -> _CarriedWords:
    singulars = list(map(fold_plural, information.words))
    places = {word: place for place, word in enumerate(dict.fromkeys(singulars))}
    joined = np.array([places[word] for word in singulars], dtype=np.intp)
    nats, has = np.full(len(places), np.inf), np.zeros((len(heads), len(places)))
    np.minimum.at(nats, joined, information.nats)
    telling = np.array([float(not is_frequent(word)) for word in places])
    nats = np.maximum(nats, _TELLING * telling)  # in a small store no word is rare
    found = information.find_words([head.terms for head in heads])
    np.maximum.at(has.T, joined, found.T)
    asked = _fold_words(_get_words(question.text))
    titles = [_fold_words(_get_words(head.title)) for head in heads]
    own = _mark(titles, places)
    asked_for = own * np.array([title <= asked for title in titles])[:, None]
    alike = np.clip((near - _ALIKE) / (_EQUAL - _ALIKE), 0.0, 1.0)
    lacks, unnamed = ((1.0 - has) * np.minimum(1.0, alike @ words) for words in (has, asked_for))
    lacking, names = lacks * nats, unnamed * nats
    known = [_fold_words(turns.words) for turns in recalled]
    now, past = _mark([asked], places), _mark(known, places)
    new, gone = now * (1.0 - past), past * (1.0 - now)
    # An outcome alone does not show that the document was used without them.
    excused = past * np.array([_EXCUSE * turns.stated for turns in recalled])[:, None]
    missing, excuses = new @ lacking.T, excused @ lacking.T
    renamed = np.minimum(new @ names.T, (gone * nats) @ own.T)
    # Pages without titles do not say what they are about.
    named = new * _mark([fold_plurals(_find_names(question.text, asked))], places)
    named *= ((new - named) @ telling == 0.0)[:, None]  # else it is not the same question of both
    other = np.minimum(named @ lacks.T, (gone * telling) @ has.T)
    renamed = np.maximum(renamed, _NAME * other)
    return _CarriedWords(
        shares=np.exp(-np.maximum(0.0, np.maximum(missing - excuses, renamed)) / _NATS),
        passed=np.exp(-((new * nats) @ asked_for.T + _NAME * named @ has.T) / _NATS),
        missing=missing,
        excuses=excuses,
        new=new * telling * nats,
        has=has,
        is_reworded=[not all(map(is_frequent, asked - words)) for words in known],
    )


def _mark(texts: Sequence[AbstractSet[str]], places: Mapping[str, int]) -> Floats:
    """Mark which texts have which words: 1 or 0, shape ``[n, W]``."""
    marked = np.zeros((len(texts), len(places)))
    for row, text in zip(marked, texts, strict=True):
        row[[places[word] for word in places.keys() & text]] = 1.0
    return marked


def _find_names(text: str, words: Iterable[str]) -> frozenset[str]:
    """Find words of a question that name something: with digits, or capitals after the first."""
    capitalised = (w.token for w in split_words(text, marked=True) if w.capitalised and w.start)
    return frozenset([*capitalised, *(word for word in words if any(map(str.isdigit, word)))])


def _weigh_steps(
    past: Floats, query: Floats, near: Floats, used: Sequence[int], shift: float
) -> Floats:
    """Compute an exponent for how far each text has overtaken each used one, shape ``[U, n]``.

    A text overtakes a used one if it is farther from the past query and nearer to the current one.
    The exponent grows with the cosine between two steps: from the used text to the other, and from
    the past query to the current one. It is high where one word makes both steps, however small.

    Args:
        past: Similarity of each text to the past query, shape ``[n]``.
        query: Similarity of each text to the current query, shape ``[n]``.
        near: Similarity of each text to the used ones, shape ``[U, n]``.
        shift: Similarity of both queries.
    """
    before, now = past[used, None] - past, query - query[used, None]
    lengths = 2.0 * np.sqrt(np.maximum(_TINY, (1.0 - near) * (1.0 - shift)))
    cosines = np.where(np.minimum(before, now) > 0.0, (before + now) / lengths, 0.0)
    weights: Floats = (np.minimum(1.0, cosines) / _STEP) ** 4
    return weights


def _find_counterparts(text: Floats, query: Floats, past: Floats, row: int, shift: float) -> Floats:
    """Compute how far each text is to the current query what a used one was to a past query.

    The sought vector is that of the used text, plus that of the current query, less that of the
    past query, as words are found by analogy (Mikolov, Yih & Zweig 2013); the nearest other texts
    share the result.

    Args:
        text: Similarity of each text to the used one, shape ``[n]``.
        query: Similarity of each text to the current query, shape ``[n]``.
        past: Similarity of each text to the past query, shape ``[n]``.

    Returns:
        Shares, shape ``[n]``, whose sum is at most 1: less if no text is near.
    """
    squared = 3.0 + 2.0 * (query[row] - past[row] - shift)  # length of the sought vector
    near = (text + query - past) / math.sqrt(max(_EQUAL, squared))
    near[row] = -1.0
    odds = np.exp((near - near.max()) / _COUNTERPART)
    shares: Floats = max(0.0, float(near.max())) * odds / odds.sum()
    return shares


def _word_information(question: EpisodeQuery) -> dict[str, float]:
    """Compute the information of a query's words in nats; unknown words count as the rarest.

    Frequent words of a language are bounded: a small corpus does not show how little they say.
    """
    words, nats = question.information
    known = dict(zip(words, nats.tolist(), strict=True))
    rarest = max(known.values(), default=1.0)
    return {
        word: min(known.get(word, rarest), _FREQUENT if is_frequent(word) else math.inf)
        for word in list_distinct_words(question.text)
    }


@lru_cache(maxsize=_CACHED)
def _get_words(text: str) -> frozenset[str]:
    """Collect the distinct words of a query or a title."""
    return frozenset(list_distinct_words(text))


_fold_words: Callable[[frozenset[str]], frozenset[str]] = lru_cache(maxsize=_CACHED)(fold_plurals)
_get_signs = lru_cache(maxsize=_CACHED)(find_signs)


def _compare_words(
    information: Mapping[str, float], total: float, words: AbstractSet[str]
) -> tuple[float, float]:
    """Compute the share of a query's information in a past query, and their overlap, in [0, 1].

    For the share, the total counts as at least 15 nats, so that queries with little information
    share less. The overlap is the geometric mean of two shares of common words: among the words of
    the past query, by number; among those of the query, by information, so that phrases that many
    questions use make no questions alike.

    Args:
        information: Information of the query's words, in nats.
    """
    both = words & information.keys()
    if not both:
        return 0.0, 0.0
    common = sum(information[word] for word in both)
    return common / max(_LITTLE, total), math.sqrt(common / total * len(both) / len(words))


def _scale_above(value: float, threshold: float) -> float:
    """Scale linearly from 0 at ``threshold`` to 1 at 1; clipped, since rounding may exceed 1."""
    return min(1.0, max(0.0, (value - threshold) / (1.0 - threshold)))


AUTO_NOTE_PREFIX = "auto:"
"""Prefix of the ids of automatic notes, which are on probation."""


class NoteMemory(NamespaceCollections):
    """Finds notes; namespaces without notes cost nothing."""

    def __init__(
        self, store: GraphStore, index: VectorIndex | None, settings: NoteSettings
    ) -> None:
        """Keep the store, and ``index`` for collections of vectors; None scans rows instead."""
        super().__init__(index, "notes")
        self._store, self._settings = store, settings

    def near(self, read: Reader, vector: Vector, clock: Clock) -> dict[str, float]:
        """Find the notes of a namespace nearest to a query: similarities by id, nearest first.

        If ``vector`` is zero, there are none.
        """
        if not (clock.notes and vector.any()):
            return {}
        notes = self._read_candidates(read, vector, clock)
        scores = compare_vectors([note.vector for note in notes], vector, read.stretch)
        ranked = sorted(zip(scores, notes, strict=True), key=lambda pair: -pair[0])
        return {note.id: score for score, note in ranked[: self._settings.neighbours]}

    def _read_candidates(self, read: Reader, vector: Vector, clock: Clock) -> list[NoteVector]:
        if not self.available:
            limit = self._settings.max_scanned
            return read.notes.latest(clock.key, self.get_probation_start(clock), limit)
        ids = self.of(clock.key).on(read).search(vector, self._settings.neighbours)
        return read.notes.near(clock.key, ids, self.get_probation_start(clock))

    def find_expired(self, read: Reader, ids: Iterable[str], clock: Clock) -> set[str]:
        """Select those of ``ids`` that are notes whose probation has ended without a use."""
        automatic = (
            [node for node in ids if node.startswith(AUTO_NOTE_PREFIX)] if clock.notes else []
        )
        if not automatic:
            return set()
        return read.notes.find_expired(clock.key, automatic, self.get_probation_start(clock))

    def get_probation_start(self, clock: Clock) -> int:
        """Return the number of the turn since which a note on probation must have been used."""
        # The clock counts the turns before this one.
        return clock.turn + 1 - self._settings.probation_turns

    def catch_up(self, minimum: int = 1) -> None:
        """Index new notes once there are ``minimum`` of them; until then their rows are scanned.

        A process without the index does nothing: another one indexes.
        """
        if not self.has_index or self._store.notes.count_unindexed() < minimum:
            return
        unindexed = self._store.notes.get_unindexed()
        entries = [CollectionEntry(note.namespace, note.id, note.vector) for note in unindexed]
        self.fill(
            self._store,
            entries,
            partial(self._store.write, mark_indexed, notes=[note.key for note in unindexed]),
            lambda key, ids: {n.id for n in self._store.notes.get_facts(ids) if n.owner == key},
        )
