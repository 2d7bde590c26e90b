"""BM25 over all words, by bm25s (Lù 2024)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import bm25s

from crabpath_lab.methods.base import (
    EvaluationCorpus,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.core.text import list_query_words, list_searched_words

WordSearch = Callable[[str, int], list[int]]
"""Positions of the best matching chunks, for a query and a depth."""


@contextmanager
def open_lexical(corpus: EvaluationCorpus) -> Iterator[RankFunction]:
    """Rank the chunks by BM25, tokenized as in the library."""
    match = build_word_search(corpus)

    def rank(query: str, _vector: Vector, depth: int) -> list[RetrievedChunk]:
        return corpus.take(match(query, depth))

    yield rank


def build_word_search(corpus: EvaluationCorpus) -> WordSearch:
    """Index the chunks by words; chunks without a word of the query are not returned."""
    index = bm25s.BM25()
    index.index([list_searched_words(text) for text in corpus.texts()], show_progress=False)

    def match(query: str, depth: int) -> list[int]:
        wanted = min(depth, len(corpus.chunks))
        found = index.retrieve([list_query_words(query)], k=wanted, show_progress=False)
        pairs = zip(found.documents[0].tolist(), found.scores[0].tolist(), strict=True)
        return [place for place, score in pairs if score > 0]

    return match
