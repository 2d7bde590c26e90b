"""CrabPath before any feedback: search, graph walk and the fitted prior."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crabpath_lab.methods.base import (
    CHUNKS_PER_DOCUMENT,
    EvaluationCorpus,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.records import ModelUsage, Vector
from crabpath_retrievers.crabpath import CrabPath


@dataclass(slots=True)
class MemoryRanking:
    """Ranks by a memory; asking records nothing.

    Attributes:
        usage: Usage of chat models so far.
    """

    memory: CrabPath
    corpus: EvaluationCorpus
    usage: ModelUsage = field(default_factory=ModelUsage)

    def __call__(self, query: str, vector: Vector, depth: int) -> list[RetrievedChunk]:
        """Return the best chunks; where documents are asked for, fewer: ``depth`` is in chunks."""
        distinct = self.corpus.distinct
        k = max(1, depth // CHUNKS_PER_DOCUMENT) if distinct else depth
        answer = self.memory.retrieve(
            query, k=k, one_per_document=distinct, vector=vector, record=False
        )
        self.usage += answer.turn.usage
        found = answer.documents
        return [RetrievedChunk(x.node.document, x.node.content, x.score) for x in found]


@contextmanager
def open_cold(corpus: EvaluationCorpus, **opening: Any) -> Iterator[RankFunction]:
    """Open a temporary memory that holds a corpus; ``opening`` is for ``CrabPath.open``."""
    with CrabPath.open(embeddings=corpus.embeddings, **opening) as memory:
        shown = bar if corpus.show_progress else None
        memory.add_documents(corpus.documents, split=corpus.split, progress=shown)
        yield MemoryRanking(memory, corpus)
