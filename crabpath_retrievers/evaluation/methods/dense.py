"""Plain Chroma through langchain-chroma: cosine similarity and nothing else."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

from chromadb.config import Settings
from langchain_chroma import Chroma
from langchain_core.documents import Document

from crabpath_retrievers.evaluation.methods.base import Corpus, Found, Rank
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.progress import bar

_BATCH = 1000
# As the project's own index, but searched wide enough to miss no neighbour.
_EXACT = {"space": "cosine", "ef_construction": 128, "max_neighbors": 16, "ef_search": 400}

Nearest = Callable[[Vector, int], list[int]]
"""Places of the nearest chunks, for a vector of shape ``[d]`` and a depth."""


@contextmanager
def dense(corpus: Corpus) -> Iterator[Rank]:
    """An in-memory collection of the chunks."""
    with nearest(corpus) as near:

        def rank(_query: str, vector: Vector, depth: int) -> list[Found]:
            chunks = [corpus.chunks[place] for place in near(vector, depth)]
            return [Found(chunk.document, chunk.content) for chunk in chunks]

        yield rank


@contextmanager
def nearest(corpus: Corpus) -> Iterator[Nearest]:
    """Search of the chunks by vector."""
    store = Chroma(
        f"eval-{uuid.uuid4().hex}",  # in-memory clients of one process share their collections
        corpus.embeddings,
        client_settings=Settings(anonymized_telemetry=False),
        collection_configuration=cast("Any", {"hnsw": _EXACT}),
    )
    texts = corpus.texts()
    silent = nullcontext(lambda _units: None)
    progress = bar(len(texts), description="dense: indexing") if corpus.shown else silent
    with progress as advance:
        for start in range(0, len(texts), _BATCH):
            part = texts[start : start + _BATCH]
            places = range(start, start + len(part))
            store.add_documents(
                [Document(text) for text in part], ids=[str(place) for place in places]
            )
            advance(len(part))

    def near(vector: Vector, depth: int) -> list[int]:
        wanted = min(depth, len(texts))
        found = store.similarity_search_by_vector(vector.tolist(), k=wanted)
        return [int(str(document.id)) for document in found]

    try:
        yield near
    finally:
        store.delete_collection()
