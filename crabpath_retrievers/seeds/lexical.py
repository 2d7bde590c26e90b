"""Lexical search in the full-text index of the SQL store, at bounded cost."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import is_specific_name, tokenise


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
