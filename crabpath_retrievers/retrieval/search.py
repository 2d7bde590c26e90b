"""First-stage search: dense, lexical and name matches of one query, joined with their scores.

Lexical search in the full-text index of the SQL store, at bounded cost.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers.config import SeedSettings, Settings
from crabpath_retrievers.core.language import is_function_word
from crabpath_retrievers.core.metadata import drop_orders, list_ordered_keys, require_numbers
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.records import Candidate, NodeHead, Vector, compare_vectors
from crabpath_retrievers.core.text import (
    QueryInformation,
    consists_of_name,
    contains_name,
    drop_foreign_forms,
    is_character,
    list_distinct_words,
    list_name_words,
    list_query_words,
    list_with_plurals,
    split_words,
)
from crabpath_retrievers.errors import StoreError, StoreUnavailableError
from crabpath_retrievers.retrieval.episodes import (
    EpisodeQuery,
    EpisodeScore,
    PastTurns,
    score_turns,
)
from crabpath_retrievers.retrieval.namespace_model import NamespaceModels
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.walk import Clock, QueryFacts
from crabpath_retrievers.storage.schema import RETIRED
from crabpath_retrievers.vectors.base import VectorIndex, find_ids, select_ids

_NO_SCORE = EpisodeScore()
_LONGEST_QUERY = 20_000  # characters that lexical search reads
_MAX_WORDS = 400  # words of a query in which names are looked for
_MAX_HITS = 8192  # hits requested from an index at most
_FEEDBACK = 3  # best matches of words whose vectors stand for that of a question
_WORDED = 2.0  # similarity of the best match of words, where vectors say nothing
_WORDS_ALONE = 10  # factor of matches that are searched by words, where vectors say nothing
_SAME_TEXT = 0.9  # similarity from which vectors that say nothing are those of one text
_CHUNKS = 3  # factor of hits when each document is returned once, or only some versions are


def select_query_words(words: Sequence[str], settings: SeedSettings) -> list[str]:
    """Select the distinct words of a query, at most ``settings.max_query_terms``, longest first."""
    unique = list(dict.fromkeys(words))
    return sorted(unique, key=len, reverse=True)[: settings.max_query_terms]


def compute_idf(facts: QueryFacts) -> dict[str, float]:
    """Compute inverse document frequencies in nats by word, rarest word first."""
    known = drop_foreign_forms(facts.frequencies)
    rarest = sorted(known, key=lambda word: (known[word], word))
    counts = np.array([known[word] for word in rarest], dtype=np.float64)
    # BM25 idf (Robertson & Zaragoza 2009, eq. 3.3), kept positive as Lucene does.
    nats = np.log1p((facts.total - counts + 0.5) / (counts + 0.5)).tolist()
    return dict(zip(rarest, nats, strict=True))


def search_lexical(
    read: Reader, facts: QueryFacts, idf: Mapping[str, float], settings: SeedSettings
) -> dict[int, float]:
    """Search by words: keys of the matches, with BM25 scores relative to the best, in [0, 1].

    ``facts`` and ``idf`` are those of the query's words. Only the rarest words are searched, as
    many as match at most ``settings.max_postings`` nodes together: common words cost most and
    discriminate least.
    """
    chosen: dict[str, float] = {}
    budget = settings.max_postings
    for word, nats in idf.items():
        budget -= facts.frequencies[word]
        if chosen and budget < 0:
            break
        chosen[word] = nats
    found = read.walk.search_words(chosen, settings.hits_per_engine, facts)
    best = max((score for _, score in found), default=0.0) or 1.0
    return {key: score / best for key, score in found}


def list_word_sequences(words: Sequence[str], longest: int) -> list[str]:
    """List the sequences of neighbouring words in a text that may be names.

    Args:
        longest: Most words of a sequence; characters of scripts without spaces do not count, except
            in long texts.
    """
    tokens = max(longest, _MAX_WORDS * longest // max(1, len(words)))
    counts = [not is_character(word) for word in words]
    found: dict[str, None] = {}
    for start in range(len(words)):
        several = 0
        for end in range(start, min(start + tokens, len(words))):
            several += counts[end]
            if several > longest:
                break
            found[" ".join(words[start : end + 1])] = None
    return list(found)


class SeedHits(NamedTuple):
    """The result of a first-stage search."""

    clock: Clock
    hits: dict[int, Candidate]
    information: QueryInformation


def find_nearest(read: Reader, index: VectorIndex, vector: Vector, k: int) -> list[NodeHead]:
    """Find the k documents nearest to a unit vector ``[d]``, without notes."""
    index = index.on(read)
    ids = find_ids(index, vector, k)
    heads = read.walk.get_nodes(ids)
    if len(heads) < len(ids):
        ids, heads = search_farther(read, partial(find_ids, index, vector), (ids, heads), k, k)
    rank = {node: number for number, node in enumerate(ids)}
    return sorted(heads, key=lambda head: rank[head.id])[:k]


def search_farther(
    read: Reader,
    search: Callable[[int], Sequence[str]],
    near: tuple[Sequence[str], list[NodeHead]],
    limit: int,
    wanted: int,
) -> tuple[Sequence[str], list[NodeHead]]:
    """Request more hits while an index returns vectors of documents that no longer exist.

    Args:
        search: Returns the ids of a given number of nearest vectors.
        near: The ids that ``search`` returned for ``limit``, and the known nodes of these and of
            other searches.

    Returns:
        Both parts of ``near``, extended.
    """
    ids, heads = near
    known = {head.id for head in heads}
    while len(known.intersection(ids)) < wanted and len(ids) >= limit and limit < _MAX_HITS:
        limit = min(2 * limit, _MAX_HITS)
        ids = search(limit)
        heads = heads + read.walk.get_nodes([node_id for node_id in ids if node_id not in known])
        known = {head.id for head in heads}
    return ids, heads


class SeedSearch:
    """Finds the candidates from which a walk may start."""

    def __init__(self, index: VectorIndex, settings: Settings, models: NamespaceModels) -> None:
        """Keep the index, and ``models``, which recall documents of past turns and notes."""
        self._index, self._settings = index, settings
        self._models = models

    def find(self, read: Reader, query: Query, vector: Vector, depth: int = 1) -> SeedHits:
        """Search by vector, words and names, and recall past turns.

        ``vector`` is that of the query, unit length, shape ``[d]``; zero searches by words and
        names alone. ``depth`` multiplies the hits of each search.
        """
        # At least k hits, so that the answer can have k documents.
        seeds, wanted = self._settings.seeds, query.k
        if query.one_per_document or query.as_of:
            depth, wanted = depth * _CHUNKS, wanted * _CHUNKS
        words_depth = depth if read.informative else depth * _WORDS_ALONE
        if words_depth > 1:
            seeds = _widen(seeds, depth, words_depth)
        limit = max(seeds.hits_per_engine, wanted)
        has_vector = bool(vector.any())
        text = query.text[:_LONGEST_QUERY]
        words = list_name_words(text)
        longest = self._settings.links.max_name_words
        facts = read.walk.read_facts(
            query.namespace,
            select_query_words(list_query_words(text, read.language), seeds),
            list_word_sequences(words[:_MAX_WORDS], longest),
        )
        index = self._index.on(read)
        dense = self._search_dense(read, query.filter, vector, limit, facts) if has_vector else ()
        clock, idf = facts.clock, compute_idf(facts)
        information = QueryInformation.from_idf(idf)
        lexical = search_lexical(read, facts, idf, seeds)
        owners = {n: keys for n, keys in facts.named.items() if contains_name(text, n)}
        named = self._match_names(text, owners, information)
        ids = [*dense, *query.seed_ids, *(query.candidate_ids or ())]
        recalled: Sequence[PastTurns] = ()
        asking = EpisodeQuery(text, vector, information)
        if clock.learned or clock.notes:
            recalled, notes = self._models.recall(read, asking, clock)
            ids += [n for turns in recalled for n, credit in turns.documents.items() if credit > 0]
            ids += notes
        heads = read.walk.get_nodes(
            ids, [*lexical, *named], namespace=clock.key, corpus=clock.corpus
        )
        self._report_unknown(read, dense, heads)
        if len({head.id for head in heads}.intersection(dense)) < min(wanted, len(dense)):
            search = partial(find_ids, index, vector, filter=query.filter)
            dense, heads = search_farther(read, search, (dense, heads), limit, wanted)
        if query.filter:
            ids = [head.id for head in heads]
            allowed = select_ids(read, index, ids, vector, query.filter, set(dense))
            heads = [head for head in heads if head.id in allowed]
            if has_vector and not heads:
                self._require_numbers(read, query.filter, vector, limit, only_dates=True)
        hints = set(query.seed_ids)
        hits: dict[int, Candidate] = {}
        vectors = [head.vector for head in heads]
        similarities = compare_vectors(vectors, vector, read.stretch)
        past = self._score_past(read, query, recalled, heads, facts, asking) if recalled else {}
        if not read.informative:
            similarities = [
                near if near > _SAME_TEXT else _WORDED * lexical.get(head.key, 0.0)
                for head, near in zip(heads, similarities, strict=True)
            ]
        for head, similarity in zip(heads, similarities, strict=True):
            key, score = head.key, past.get(head.id, _NO_SCORE)
            hits[key] = Candidate(
                head,
                similarity,
                lexical.get(key, 0.0),
                head.rarity if key in named else 0.0,
                named.get(key, 0.0),
                1.0 if head.id in hints else 0.0,
                **score._asdict(),
            )
        return SeedHits(clock, hits, information)

    def _search_dense(
        self, read: Reader, condition: Any, vector: Vector, limit: int, facts: QueryFacts
    ) -> Sequence[str]:
        """Find the ids of the ``limit`` nearest documents that the filter ``condition`` allows.

        Raises:
            InvalidInputError: The filter compares texts by size.
        """
        if self._index.is_copied and not condition:
            near = read.walk.find_nearest(vector, limit, facts)
            if near is not None:
                return near
        try:
            return find_ids(self._index.on(read), vector, limit, condition)
        except StoreUnavailableError:
            raise
        except StoreError:  # PGVectorStore fails where it compares a text with a number
            self._require_numbers(read, condition, vector, limit, only_dates=False)
            raise

    def _require_numbers(
        self, read: Reader, condition: Any, vector: Vector, limit: int, *, only_dates: bool
    ) -> None:
        """Check that a filter without results does not compare texts by size.

        Metadata of the ``limit`` documents nearest to ``vector`` are read. If ``only_dates``, texts
        are only refused if they are dates.
        """
        if not list_ordered_keys(condition):
            return
        near = find_ids(self._index.on(read), vector, limit, drop_orders(condition))
        nodes = read.catalog.documents(near).values() if near else ()
        require_numbers(condition, [node.metadata for node in nodes], only_dates=only_dates)

    def _score_past(
        self,
        read: Reader,
        query: Query,
        recalled: Sequence[PastTurns],
        heads: Sequence[NodeHead],
        facts: QueryFacts,
        asking: EpisodeQuery,
    ) -> dict[str, EpisodeScore]:
        """Score candidates by past turns, by node id."""
        words = dict.fromkeys(list_distinct_words(asking.text))
        for turns in recalled:
            words |= dict.fromkeys(sorted(turns.words))
        few = list_with_plurals(words)[:_MAX_WORDS]
        more = read.walk.read_more_facts(query.namespace, few, facts)
        both = QueryInformation.from_idf(compute_idf(more))
        return score_turns(recalled, heads, asking, both, read.stretch)

    def find_stand_in(self, read: Reader, query: Query, size: int) -> Vector:
        """Make a vector of ``size`` for a question without one: the mean of what its words find.

        It is the centroid of pseudo-relevance feedback (Rocchio 1971); zero if no word is known.
        """
        seeds, text = self._settings.seeds, query.text[:_LONGEST_QUERY]
        words = list_query_words(text, read.language)
        facts = read.walk.read_facts(query.namespace, select_query_words(words, seeds))
        best = list(search_lexical(read, facts, compute_idf(facts), seeds))[:_FEEDBACK]
        heads = read.walk.get_nodes((), best) if best else []
        total = np.zeros(size, dtype=np.float32)
        for head in heads:
            total += head.vector
        return total / (float(np.linalg.norm(total)) or 1.0)

    def _match_names(
        self, text: str, owners: Mapping[str, Sequence[int]], information: QueryInformation
    ) -> dict[int, float]:
        """Find nodes whose name occurs in the query: 1 if the query is only that name, else 0.

        ``owners`` has the keys of nodes by name. A longer name hides the names inside it. Frequent
        words of a language are a name only if the query is nothing else, or capitalises them as a
        name: "What does WITH do?".
        """
        named: dict[int, float] = {}
        matched = ""
        for name in sorted(owners, key=len, reverse=True):
            if f" {name} " not in matched and len(owners[name]) <= self._settings.links.max_owners:
                exact = consists_of_name(information.words, name)
                if exact or not all(map(is_function_word, name.split())) or _is_set_off(text, name):
                    named |= dict.fromkeys(owners[name], float(exact))
                    matched += f" {name} "
        return named

    def _report_unknown(
        self, read: Reader, dense: Sequence[str], heads: Sequence[NodeHead]
    ) -> None:
        """Log once that a vector store owned by others has documents that the graph lacks.

        ``dense`` are the ids that the store returned; ``heads`` the nodes that the graph has.
        """
        if self._index.unknown_reported:
            return
        unknown = set(dense) - {head.id for head in heads} - self._index.ignored
        if unknown:
            # A replica may not have them yet.
            hidden = read.primary.catalog.find_chunks(ids=unknown, owners=(0, RETIRED))
            if unknown := unknown - {known.id for known in hidden}:
                self._index.report_unknown(sorted(unknown))


def _is_set_off(text: str, name: str) -> bool:
    """Whether a query capitalises the first word of a name somewhere after its own first word.

    False if the query capitalises all of its words.
    """
    words, first = list(split_words(text)), name.split(" ", maxsplit=1)[0]
    return any(word.capitalised for word in words[1:] if word.token == first) and not all(
        word.capitalised for word in words
    )


def _widen(seeds: SeedSettings, hits: int, words: int) -> SeedSettings:
    """Multiply the limits of settings: of hits by ``hits``, and of words by ``words``."""
    # Not validated: a multiple may be above what a user may set.
    return seeds.model_copy(
        update={
            "hits_per_engine": seeds.hits_per_engine * hits,
            "max_postings": seeds.max_postings * words,
        }
    )
