"""Plain Chroma through langchain-chroma: cosine similarity and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from tempfile import TemporaryDirectory
from typing import Any, cast

import chromadb
from chromadb.config import Settings
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_lab.methods.base import (
    EvaluationCorpus,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.records import Vector

_BATCH = 1000
# As the project's own index, but searched wide enough to miss no neighbour.
_EXACT = {"space": "cosine", "ef_construction": 128, "max_neighbors": 16, "ef_search": 400}

VectorSearch = Callable[[Vector, int], list[int]]
"""Positions of the nearest chunks, for a vector of shape ``[d]`` and a depth."""


@contextmanager
def open_dense(corpus: EvaluationCorpus) -> Iterator[RankFunction]:
    """Index the chunks in a temporary collection."""
    with open_vector_search(corpus) as near:

        def rank(_query: str, vector: Vector, depth: int) -> list[RetrievedChunk]:
            return corpus.take(near(vector, depth))

        yield rank


@contextmanager
def open_vector_search(corpus: EvaluationCorpus) -> Iterator[VectorSearch]:
    """Index the chunks by vector."""
    texts = corpus.texts()
    with _open_collection(corpus.embeddings) as store:
        silent = nullcontext(lambda _units: None)
        progress = (
            bar(len(texts), description="dense: indexing") if corpus.show_progress else silent
        )
        with progress as advance:
            for start in range(0, len(texts), _BATCH):
                part = texts[start : start + _BATCH]
                ids = [str(start + place) for place in range(len(part))]
                store.add_documents([Document(text) for text in part], ids=ids)
                advance(len(part))

        def near(vector: Vector, depth: int) -> list[int]:
            wanted = min(depth, len(texts))
            found = store.similarity_search_by_vector(vector.tolist(), k=wanted)
            return [int(str(document.id)) for document in found]

        yield near


@contextmanager
def _open_collection(embeddings: Embeddings) -> Iterator[Chroma]:
    """Open an empty collection in a temporary directory: in-memory clients would share one."""
    with TemporaryDirectory(prefix="crabpath-eval-", ignore_cleanup_errors=True) as folder:
        client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
        try:
            yield Chroma(
                "dense",
                embeddings,
                client=client,
                collection_configuration=cast("Any", {"hnsw": _EXACT}),
            )
        finally:
            close = getattr(client, "close", None)  # older releases have none
            if close is not None:
                close()
