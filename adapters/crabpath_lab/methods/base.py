"""Input and output of a method; neither holds labels."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from typing_extensions import Self

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.ingest.chunking import Chunking, make_embedding_text

require_extra("eval", "crabpath_lab.methods")  # before the methods, which import its modules

CHUNKS_PER_DOCUMENT = 6  # how much deeper chunks are ranked, so that enough documents are found


class RetrievedChunk(NamedTuple):
    """A retrieved chunk: id of its document, its text, and P(relevant) if the method tells it."""

    document: str
    text: str
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class EvaluationCorpus:
    """A corpus as methods get it, without questions and labels.

    Attributes:
        documents: Text and title.
        split: Whether documents are cut into chunks.
        chunks: What the documents are cut into; the same for every method.
        embeddings: The embedder; the same for every method.
        distinct: Whether documents are asked for rather than chunks.
        show_progress: Whether indexing shows its progress; False below another progress bar.
    """

    documents: tuple[Document, ...]
    split: bool
    chunks: tuple[Node, ...]
    embeddings: Embeddings
    distinct: bool = False
    show_progress: bool = True

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embeddings: Embeddings,
        *,
        split: bool,
        distinct: bool = False,
        show_progress: bool = True,
    ) -> Self:
        """Split documents as an ingest with default settings does."""
        given = tuple(documents)
        nodes = Chunking(Settings().ingest, split=split).nodes(given)
        return cls(given, split, tuple(nodes), embeddings, distinct, show_progress)

    def take(self, places: Iterable[int]) -> list[RetrievedChunk]:
        """Return the chunks at these places."""
        chunks = [self.chunks[place] for place in places]
        return [RetrievedChunk(chunk.document, chunk.content) for chunk in chunks]

    def texts(self) -> list[str]:
        """Texts to index: each chunk, preceded by its title where the text does not contain it."""
        return [make_embedding_text(chunk) for chunk in self.chunks]


RankFunction = Callable[[str, Vector, int], list[RetrievedChunk]]
"""Ranks chunks, best first, for a query, its unit vector of shape ``[d]``, and a depth."""

Method = Callable[[EvaluationCorpus], AbstractContextManager[RankFunction]]
"""Indexes a corpus and gives the ranking; releases the index at the end."""
