"""Every vector index over real storage, and an embedder whose texts are vectors."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import ChromaIndex
from crabpath_retrievers.vectors.embedder import to_unit_vector
from crabpath_retrievers.vectors.langchain_store import VectorStoreIndex
from crabpath_retrievers.vectors.pgvector import PgVectorIndex


class Numbers(Embeddings):
    """Reads a vector off a text such as ``"1 0 0.5"``, so that every index sees the same ones."""

    def embed_query(self, text: str) -> list[float]:
        return to_unit_vector([float(number) for number in text.split()]).tolist()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


@dataclass(frozen=True)
class Backend:
    """An index, and how a condition on one metadata value is written for it."""

    index: VectorIndex
    where: Callable[[str, str], Any]

    def put(self, records: dict[str, str], **metadata: object) -> None:
        """Upsert texts of numbers under ids, all with the same metadata."""
        texts = list(records.values())
        self.index.upsert(list(records), [*map(vector, texts)], texts, [metadata for _ in records])

    def ids(self, text: str, k: int, condition: Any = None) -> list[str]:
        """Ids that a search from a text of numbers finds."""
        return self.index.search(vector(text), k, condition)


def vector(text: str) -> np.ndarray:
    return to_unit_vector(Numbers().embed_query(text))


class StrictStore(InMemoryVectorStore):
    """A store like FAISS: it refuses known ids on writing and unknown ones on deletion."""

    def add_documents(self, documents, ids=None, **kwargs):
        if set(ids) & set(self.store):
            msg = "tried to add ids that already exist"
            raise ValueError(msg)
        return super().add_documents(documents, ids, **kwargs)

    def delete(self, ids=None, **kwargs):
        for node_id in ids:
            del self.store[node_id]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    """A Chroma server for all tests; each uses a collection of its own."""
    started = ChromaServer(tmp_path_factory.mktemp("chroma-server"))
    yield started
    started.disconnect()
    started.stop()


@pytest.fixture(scope="session")
def chroma_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of Chroma that stays open for all tests; each uses a collection of its own."""
    place = tmp_path_factory.mktemp("chroma")
    opened = ChromaIndex.open_directory(place)
    yield place
    opened.close()


def _predicate(key: str, value: str) -> Callable[[Any], bool]:
    return lambda document: document.metadata.get(key) == value


@pytest.fixture(
    params=[
        "chroma",
        pytest.param("chroma-server", marks=pytest.mark.slow),
        "langchain-chroma",
        "langchain-strict",
        "pgvector",
    ]
)
def backend(request: pytest.FixtureRequest, chroma_place: Path) -> Iterator[Backend]:
    """An empty index of each kind."""
    name = f"test-{uuid.uuid4().hex}"
    index: VectorIndex
    where: Callable[[str, str], Any] = lambda key, value: {key: value}  # noqa: E731
    if request.param == "chroma":
        index = ChromaIndex.open_directory(chroma_place, name)
    elif request.param == "chroma-server":
        index = ChromaIndex.from_client(request.getfixturevalue("server").client(), name)
    elif request.param == "langchain-chroma":
        client = chromadb.PersistentClient(path=str(chroma_place / "theirs"))
        index = VectorStoreIndex(Chroma(name, Numbers(), client=client))
    elif request.param == "pgvector":
        store = GraphStore(request.getfixturevalue("pgvector_url"))
        index = PgVectorIndex(store)
        index.close = store.close
    else:
        index, where = VectorStoreIndex(StrictStore(Numbers())), _predicate
    yield Backend(index, where)
    index.close()
