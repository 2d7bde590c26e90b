"""BM25 over all words, by bm25s (Lù 2024)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import bm25s

from crabpath_retrievers.evaluation.methods.base import (
    EvaluationCorpus,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.text import tokens

WordSearch = Callable[[str, int], list[int]]
"""Places of the chunks that match best, for a query and a depth."""


@contextmanager
def open_lexical(corpus: EvaluationCorpus) -> Iterator[RankFunction]:
    """The chunks in the words that the project itself searches by."""
    match = build_word_search(corpus)

    def rank(query: str, _vector: Vector, depth: int) -> list[RetrievedChunk]:
        chunks = [corpus.chunks[place] for place in match(query, depth)]
        return [RetrievedChunk(chunk.document, chunk.content) for chunk in chunks]

    yield rank


def build_word_search(corpus: EvaluationCorpus) -> WordSearch:
    """Search of the chunks by words; chunks that share none with the query are not found."""
    index = bm25s.BM25()
    index.index([tokens(text) for text in corpus.texts()], show_progress=False)

    def match(query: str, depth: int) -> list[int]:
        wanted = min(depth, len(corpus.chunks))
        found = index.retrieve([tokens(query)], k=wanted, show_progress=False)
        pairs = zip(found.documents[0].tolist(), found.scores[0].tolist(), strict=True)
        return [place for place, score in pairs if score > 0]

    return match
