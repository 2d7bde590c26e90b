"""Every vector index and every LangChain store over real storage."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromadb
import pytest
import sqlalchemy as sa
from langchain_chroma import Chroma
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from milvus_store import open_milvus

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath, VectorIndex
from crabpath_retrievers.testing import WIDTH, NumberEmbeddings
from crabpath_retrievers.vectors.chroma import ChromaIndex


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


def _faiss(_place: Path, _name: str) -> Any:
    faiss = pytest.importorskip("faiss")
    community = pytest.importorskip("langchain_community.vectorstores")
    docstores = pytest.importorskip("langchain_community.docstore.in_memory")

    return community.FAISS(
        NumberEmbeddings(), faiss.IndexFlatL2(WIDTH), docstores.InMemoryDocstore(), {}
    )


def _qdrant(_place: Path, name: str) -> Any:
    module = pytest.importorskip("langchain_qdrant")
    client_module = pytest.importorskip("qdrant_client")
    models = client_module.models

    client = client_module.QdrantClient(":memory:")
    client.create_collection(
        name, vectors_config=models.VectorParams(size=WIDTH, distance=models.Distance.COSINE)
    )
    return module.QdrantVectorStore(
        client, name, NumberEmbeddings(), validate_collection_config=False
    )


def _postgres(engine: Any, name: str) -> Any:
    module = pytest.importorskip("langchain_postgres")
    engine.init_vectorstore_table(name, WIDTH, id_column=module.Column("langchain_id", "TEXT"))
    return module.PGVectorStore.create_sync(engine, NumberEmbeddings(), name)


@pytest.fixture(scope="session")
def langchain_postgres(pgvector: str) -> Iterator[Any]:
    """LangChain's connections to a PostgreSQL server with pgvector."""
    module = pytest.importorskip("langchain_postgres")
    url = sa.make_url(pgvector).set(drivername="postgresql+asyncpg")
    engine = module.PGEngine.from_connection_string(url)
    yield engine
    asyncio.run(engine.close())


KINDS: dict[str, Callable[..., Any]] = {
    "langchain-chroma": lambda place, name: Chroma(
        name, NumberEmbeddings(), client=chromadb.PersistentClient(path=str(place / "theirs"))
    ),
    "langchain-in-memory": lambda _place, _name: InMemoryVectorStore(NumberEmbeddings()),
    "langchain-strict": lambda _place, _name: StrictStore(NumberEmbeddings()),
    "langchain-faiss": _faiss,
    "langchain-qdrant": _qdrant,
    "langchain-milvus": open_milvus,
}
"""Makes an empty LangChain store of each kind, from a directory and a name."""


@pytest.fixture(
    params=["chroma", pytest.param("chroma-server", marks=pytest.mark.slow), "pgvector"]
)
def backend(request: pytest.FixtureRequest, chroma_place: Path) -> Iterator[VectorIndex]:
    """An empty index of each kind that a memory has by itself."""
    name = f"test-{uuid.uuid4().hex}"
    index: VectorIndex
    if request.param == "chroma":
        index = ChromaIndex.open_directory(chroma_place, name)
    elif request.param == "chroma-server":
        index = ChromaIndex.from_client(request.getfixturevalue("server").client(), name)
    else:
        place = request.getfixturevalue("pgvector_url")
        memory = CrabPath.open(place, vectors="pgvector", embeddings=NumberEmbeddings())
        index = memory.index
        index.close = memory.close
    yield index
    index.close()


@pytest.fixture(params=[*KINDS, pytest.param("langchain-pgvector", marks=pytest.mark.slow)])
def vectorstore(request: pytest.FixtureRequest, chroma_place: Path) -> VectorStore:
    """An empty LangChain store of each kind."""
    name = f"test-{uuid.uuid4().hex}"
    if request.param == "langchain-pgvector":
        return _postgres(request.getfixturevalue("langchain_postgres"), name)
    return KINDS[request.param](chroma_place, name)
