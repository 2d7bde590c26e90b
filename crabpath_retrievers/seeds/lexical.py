"""Lexical hits from the SQL store's own full-text index, at a cost that does not grow."""

from collections.abc import Sequence

import numpy as np

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import is_telling, tokens


def lexical_hits(
    store: GraphStore, words: Sequence[str], settings: SeedSettings
) -> dict[int, float]:
    """Keys of the best matches with BM25 scores ≥ 0, best first.

    Only the rarest words are searched, as many as together match at most ``settings.postings``
    nodes: common words cost most and say least.

    Args:
        store: The graph store.
        words: Tokens of the query.
        settings: Bounds.
    """
    frequencies, total, mean_length = store.walk.frequencies(distinct(words, settings))
    chosen: dict[str, float] = {}
    budget = settings.postings
    for word, frequency in sorted(frequencies.items(), key=lambda item: (item[1], item[0])):
        budget -= frequency
        if chosen and budget < 0:
            break
        # Robertson & Zaragoza 2009, eq. 3.3, kept positive as Lucene does.
        chosen[word] = float(np.log1p((total - frequency + 0.5) / (frequency + 0.5)))
    return dict(store.fulltext.search(chosen, settings.hits, mean_length))


def distinct(words: Sequence[str], settings: SeedSettings) -> list[str]:
    """The distinct words of a query, the longest ones when there are too many."""
    found = list(dict.fromkeys(words))
    return sorted(found, key=len, reverse=True)[: settings.query_terms]


def names_in(text: str, longest: int, most: int = 400) -> list[str]:
    """Word n-grams of a query that could be names of nodes, longest first."""
    found = tokens(text)[:most]
    grams = (
        " ".join(found[start : start + size])
        for size in range(min(longest, len(found)), 0, -1)
        for start in range(len(found) - size + 1)
    )
    return [gram for gram in dict.fromkeys(grams) if is_telling(gram)]
