"""CrabPath before any feedback: search, graph walk and the fitted prior."""

from collections.abc import Iterator
from contextlib import contextmanager

from crabpath_retrievers.evaluation.methods.base import CHUNKS_PER_DOCUMENT, Corpus, Found, Rank
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.progress import bar


@contextmanager
def cold(corpus: Corpus) -> Iterator[Rank]:
    """A temporary memory with default settings; asking leaves no trace in it."""
    with CrabPath.open(embeddings=corpus.embeddings) as memory:
        memory.add_documents(
            corpus.documents, split=corpus.split, progress=bar if corpus.shown else None
        )

        def rank(query: str, vector: Vector, depth: int) -> list[Found]:
            k = max(1, depth // CHUNKS_PER_DOCUMENT) if corpus.distinct else depth
            answer = memory.retrieve(
                query, k=k, vector=vector, distinct=corpus.distinct, record=False
            )
            return [Found(item.node.document, item.node.content) for item in answer.documents]

        yield rank
