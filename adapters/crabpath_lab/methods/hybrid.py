"""Reciprocal-rank fusion (Cormack et al. 2009, k = 60) of dense and lexical, by LangChain."""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_classic.retrievers import EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.runnables import RunnablePassthrough

from crabpath_lab.methods.base import (
    EvaluationCorpus,
    RankFunction,
    RetrievedChunk,
)
from crabpath_lab.methods.dense import open_vector_search
from crabpath_lab.methods.lexical import build_word_search
from crabpath_retrievers.core.records import Vector

_PLACE = "place"


@contextmanager
def open_hybrid(corpus: EvaluationCorpus) -> Iterator[RankFunction]:
    """Fuse both rankings, of the same depth, with equal votes."""
    match = build_word_search(corpus)
    # Only its fusion is used: its own way of asking would embed the query a second time.
    fusion = EnsembleRetriever(
        retrievers=[RunnablePassthrough()] * 2, weights=[0.5, 0.5], c=60, id_key=_PLACE
    )
    with open_vector_search(corpus) as near:

        def rank(query: str, vector: Vector, depth: int) -> list[RetrievedChunk]:
            lists = [near(vector, depth), match(query, depth)]
            fused = fusion.weighted_reciprocal_rank([_place_documents(places) for places in lists])
            return corpus.take(document.metadata[_PLACE] for document in fused[:depth])

        yield rank


def _place_documents(places: list[int]) -> list[Document]:
    return [Document("", metadata={_PLACE: place}) for place in places]
