"""CrabPath before any feedback: search, graph walk and the fitted prior."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.progress import bar
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.evaluation.methods.base import (
    CHUNKS_PER_DOCUMENT,
    EvaluationCorpus,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.routing.policy import Router


@contextmanager
def open_cold(corpus: EvaluationCorpus) -> Iterator[RankFunction]:
    """A temporary memory with default settings; asking records nothing."""
    with open_indexed(corpus) as memory:

        def rank(query: str, vector: Vector, depth: int) -> list[RetrievedChunk]:
            answer = memory.retrieve(
                query, vector=vector, record=False, **retrieve_options(corpus, depth)
            )
            return [
                RetrievedChunk(item.node.document, item.node.content, item.score)
                for item in answer.documents
            ]

        yield rank


@contextmanager
def open_indexed(corpus: EvaluationCorpus, router: Router | None = None) -> Iterator[CrabPath]:
    """A temporary memory that holds a corpus."""
    with CrabPath.open(embeddings=corpus.embeddings, router=router) as memory:
        shown = bar if corpus.show_progress else None
        memory.add_documents(corpus.documents, split=corpus.split, progress=shown)
        yield memory


def retrieve_options(corpus: EvaluationCorpus, depth: int) -> dict[str, Any]:
    """Options of ``CrabPath.retrieve`` for a depth in chunks."""
    k = max(1, depth // CHUNKS_PER_DOCUMENT) if corpus.distinct else depth
    return {"k": k, "one_per_document": corpus.distinct}
