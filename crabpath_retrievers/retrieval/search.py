"""First-stage search: dense, lexical and name matches of one query, joined with their scores.

Lexical search in the full-text index of the SQL store, at bounded cost.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import SeedSettings, Settings
from crabpath_retrievers.core.graph import Candidate, NodeHead, Vector, cosines
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.text import QueryInformation, is_specific_name, tokenise
from crabpath_retrievers.retrieval.episodes import EpisodeQuery, EpisodeScore
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.aliases import RETIRED, SOURCE_OWNERS
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import VectorIndex


class QueryTerms(NamedTuple):
    """The words of a query that occur in the corpus.

    Attributes:
        idf: Inverse document frequency in nats by word, rarest word first.
        frequencies: Number of nodes that contain each word.
        mean_length: Mean length of the nodes, in tokens.
    """

    idf: dict[str, float]
    frequencies: dict[str, int]
    mean_length: float


def look_up_terms(store: GraphStore, words: Sequence[str], settings: SeedSettings) -> QueryTerms:
    """Look up the inverse document frequencies of a query's words.

    Args:
        store: The graph store.
        words: Tokens of the query.
        settings: Bounds.
    """
    frequencies, total, mean_length = store.walk.get_frequencies(
        select_query_words(words, settings)
    )
    rarest = sorted(frequencies, key=lambda word: (frequencies[word], word))
    counts = np.array([frequencies[word] for word in rarest], dtype=np.float64)
    # BM25 idf (Robertson & Zaragoza 2009, eq. 3.3), kept positive as Lucene does.
    nats = np.log1p((total - counts + 0.5) / (counts + 0.5)).tolist()
    return QueryTerms(dict(zip(rarest, nats, strict=True)), frequencies, mean_length)


def search_lexical(
    store: GraphStore, terms: QueryTerms, settings: SeedSettings
) -> dict[int, float]:
    """Keys of the best matches with their BM25 scores, at least 0, best first.

    Only the rarest words are searched, as many as match at most ``settings.max_postings`` nodes
    together: common words cost most and discriminate least.
    """
    chosen: dict[str, float] = {}
    budget = settings.max_postings
    for word, nats in terms.idf.items():
        budget -= terms.frequencies[word]
        if chosen and budget < 0:
            break
        chosen[word] = nats
    return dict(store.fulltext.search(chosen, settings.hits_per_engine, terms.mean_length))


def select_query_words(words: Sequence[str], settings: SeedSettings) -> list[str]:
    """The distinct words of a query, at most ``settings.query_terms``, longest first."""
    unique = list(dict.fromkeys(words))
    return sorted(unique, key=len, reverse=True)[: settings.max_query_terms]


def list_possible_names(text: str, longest: int, limit: int = 400) -> list[str]:
    """Word n-grams of a text that could be names of nodes, longest first.

    Args:
        text: The text.
        longest: Most words of a name.
        limit: Words of the text that are read.
    """
    words = tokenise(text)[:limit]
    grams = (
        " ".join(words[start : start + size])
        for size in range(min(longest, len(words)), 0, -1)
        for start in range(len(words) - size + 1)
    )
    return [gram for gram in dict.fromkeys(grams) if is_specific_name(gram)]


_LONGEST_QUERY = 20_000  # characters that lexical search reads
_MAX_HITS = 8192  # hits requested from an index at most
_CHUNKS = 3  # factor of hits when each document is returned once: chunks expected of each


class WordMatches(NamedTuple):
    """Matches of the words of a query.

    Attributes:
        lexical: BM25 score relative to the best match, in [0, 1], by node key.
        named: Nodes whose name occurs in the query, by key; 1 if the query is only that name,
            else 0.
        information: Words of the query and their information.
    """

    lexical: dict[int, float]
    named: dict[int, float]
    information: QueryInformation


class SeedHits(NamedTuple):
    """The result of a first-stage search.

    Attributes:
        clock: State of the namespace that was searched.
        hits: Candidates by node key.
        information: Words of the query and their information.
    """

    clock: Clock
    hits: dict[int, Candidate]
    information: QueryInformation


class MemoryMatches(NamedTuple):
    """What the memory of a namespace contributes to a search.

    Attributes:
        scores: Evidence of past turns about documents, by node id.
        notes: Ids of the nearest notes.
    """

    scores: Mapping[str, EpisodeScore]
    notes: Sequence[str] = ()


RecallMemory = Callable[[EpisodeQuery, Clock], MemoryMatches]


class NearestHits(NamedTuple):
    """Ids from a vector index, and the known nodes among them and among other matches."""

    ids: Sequence[str]
    heads: list[NodeHead]


def find_nearest(store: GraphStore, index: VectorIndex, vector: Vector, k: int) -> list[NodeHead]:
    """The k documents nearest to a unit vector ``[d]``; notes are not among them."""
    ids = index.search(vector, k)
    near = NearestHits(ids, store.walk.get_nodes(ids))
    if len(near.heads) < len(ids):
        near = search_farther(store, partial(index.search, vector), near, k, k)
    rank = {node: number for number, node in enumerate(near.ids)}
    return sorted(near.heads, key=lambda head: rank[head.id])[:k]


def search_farther(
    store: GraphStore,
    search: Callable[[int], list[str]],
    near: NearestHits,
    limit: int,
    wanted: int,
) -> NearestHits:
    """Request more hits while an index returns vectors of documents that no longer exist.

    Args:
        store: The graph store.
        search: Ids of so many nearest vectors.
        near: Hits so far.
        limit: Number of hits that was requested for them.
        wanted: Number of existing documents that are needed.
    """
    ids, heads = near
    known = {head.id for head in heads}
    while len(known.intersection(ids)) < wanted and len(ids) >= limit and limit < _MAX_HITS:
        limit = min(2 * limit, _MAX_HITS)
        ids = search(limit)
        heads = heads + store.walk.get_nodes([node_id for node_id in ids if node_id not in known])
        known = {head.id for head in heads}
    return NearestHits(ids, heads)


class SeedSearch:
    """Finds the candidates from which a walk may start."""

    def __init__(
        self, store: GraphStore, index: VectorIndex, settings: Settings, recall: RecallMemory
    ) -> None:
        """Search ``store`` and ``index``; ``recall`` adds documents of past turns and notes."""
        self._store, self._index, self._settings = store, index, settings
        self._recall = recall

    def find(self, query: Query, vector: Vector) -> SeedHits:
        """Search by vector, words and names, and recall past turns."""
        # At least k hits, so that the answer can have k documents.
        seeds = self._settings.seeds
        wanted = query.k
        if query.one_per_document:
            wanted *= _CHUNKS
            # Not validated: a multiple may be above what a user may set.
            seeds = seeds.model_copy(
                update={
                    "hits_per_engine": seeds.hits_per_engine * _CHUNKS,
                    "max_postings": seeds.max_postings * _CHUNKS,
                }
            )
        text = query.text[:_LONGEST_QUERY]
        limit = max(seeds.hits_per_engine, wanted)
        dense: Sequence[str] = self._index.search(vector, limit, query.filter)
        with self._store.open_reader():
            clock = self._store.walk.get_clock(query.namespace)
            words = self._match_words(text, seeds)
            scores, notes = self._recall(EpisodeQuery(text, vector, words.information), clock)
            used = [node for node, score in scores.items() if score.alike > 0 or score.same > 0]
            ids = (*dense, *query.seed_ids, *(query.candidate_ids or ()), *used, *notes)
            keys = (*words.lexical, *words.named)
            heads = self._store.walk.get_nodes(ids, keys, namespace=clock.key)
        self._report_unknown(dense, heads)
        if len({head.id for head in heads}.intersection(dense)) < min(wanted, len(dense)):
            search = partial(self._index.search, vector, filter=query.filter)
            dense, heads = search_farther(
                self._store, search, NearestHits(dense, heads), limit, wanted
            )
        if query.filter:
            near = set(dense)
            others = [head.id for head in heads if head.id not in near]
            allowed = near | self._index.filter_ids(others, vector, query.filter)
            heads = [head for head in heads if head.id in allowed]
        hits = _score(heads, vector, words, set(query.seed_ids))
        for key, hit in hits.items():
            if score := scores.get(hit.head.id):
                again, passed = max(0.0, score.same), max(0.0, -score.same)
                hits[key] = hit._replace(episode=score.alike, again=again, passed=passed)
        return SeedHits(clock, hits, words.information)

    def _report_unknown(self, dense: Sequence[str], heads: Sequence[NodeHead]) -> None:
        """Log once that a vector store owned by others has documents that the graph lacks."""
        if getattr(self._index, "unknown_reported", True):
            return
        unknown = set(dense) - {head.id for head in heads}
        if unknown:
            hidden = self._store.catalog.find_chunks(ids=unknown, owners=(*SOURCE_OWNERS, RETIRED))
            if unknown := unknown - {known.id for known in hidden}:
                self._index.report_unknown(sorted(unknown))  # type: ignore[attr-defined]

    def _match_words(self, text: str, settings: SeedSettings) -> WordMatches:
        terms = look_up_terms(self._store, tokenise(text), settings)
        scores = search_lexical(self._store, terms, settings)
        best = max(scores.values(), default=0.0) or 1.0
        lexical = {key: score / best for key, score in scores.items()}
        information = QueryInformation.from_idf(terms.idf)
        return WordMatches(lexical, self._match_names(text, information), information)

    def _match_names(self, text: str, information: QueryInformation) -> dict[int, float]:
        """Nodes whose name occurs in the query; a longer name hides the names inside it."""
        links = self._settings.links
        owners: dict[str, list[int]] = {}
        for name, key in self._store.walk.find_named_nodes(
            list_possible_names(text, links.max_name_words)
        ):
            owners.setdefault(name, []).append(key)
        named: dict[int, float] = {}
        matched = ""
        for name in sorted(owners, key=len, reverse=True):
            if f" {name} " not in matched and len(owners[name]) <= links.max_owners:
                named |= dict.fromkeys(owners[name], float(information.is_subset(name.split())))
                matched += f" {name} "
        return named


def _score(
    heads: Sequence[NodeHead], vector: Vector, words: WordMatches, hints: set[str]
) -> dict[int, Candidate]:
    if not heads:
        return {}
    return {
        head.key: Candidate(
            head,
            similarity,
            lexical=words.lexical.get(head.key, 0.0),
            name=head.rarity if head.key in words.named else 0.0,
            exact=words.named.get(head.key, 0.0),
            hint=1.0 if head.id in hints else 0.0,
        )
        for head, similarity in zip(
            heads, cosines([head.vector for head in heads], vector), strict=True
        )
    }
