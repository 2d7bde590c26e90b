"""Every vector index over real storage, and an embedder whose texts are vectors."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
import sqlalchemy as sa
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
    """An index, and what tests do with it."""

    index: VectorIndex
    store: Any = None
    """LangChain's, which the index wraps."""

    def put(self, records: dict[str, str], **metadata: object) -> None:
        """Upsert texts of numbers under ids, all with the same metadata."""
        texts = list(records.values())
        self.index.upsert(list(records), [*map(vector, texts)], texts, [metadata for _ in records])

    def ids(self, text: str, k: int, condition: Any = None) -> list[str]:
        """Ids that a search from a text of numbers finds."""
        return self.index.search(vector(text), k, condition)


WIDTH = 32
"""Dimension of stores that need to know it before the first document."""


class Padded(Numbers):
    """The same with zeros up to one dimension; angles stay."""

    def embed_query(self, text: str) -> list[float]:
        numbers = super().embed_query(text)
        return numbers + [0.0] * (WIDTH - len(numbers))


def vector(text: str) -> np.ndarray:
    return to_unit_vector(Padded().embed_query(text))


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

    return community.FAISS(Padded(), faiss.IndexFlatL2(WIDTH), docstores.InMemoryDocstore(), {})


def _qdrant(_place: Path, name: str) -> Any:
    module = pytest.importorskip("langchain_qdrant")
    client_module = pytest.importorskip("qdrant_client")
    models = client_module.models

    client = client_module.QdrantClient(":memory:")
    client.create_collection(
        name, vectors_config=models.VectorParams(size=WIDTH, distance=models.Distance.COSINE)
    )
    return module.QdrantVectorStore(client, name, Padded(), validate_collection_config=False)


def _milvus(place: Path, name: str) -> Any:
    pytest.importorskip("milvus_lite")
    module = pytest.importorskip("langchain_milvus")
    return module.Milvus(
        Padded(),
        collection_name=name.replace("-", "_"),
        # Its server ends connections whose pings come late, as on a busy machine.
        connection_args={
            "uri": str(place / "milvus.db"),
            "grpc_options": {"grpc.keepalive_time_ms": 3_600_000},
        },
        index_params={"index_type": "FLAT", "metric_type": "COSINE"},
        enable_dynamic_field=True,
        auto_id=False,
    )


def _postgres(engine: Any, name: str) -> Any:
    module = pytest.importorskip("langchain_postgres")
    engine.init_vectorstore_table(name, WIDTH, id_column=module.Column("langchain_id", "TEXT"))
    return module.PGVectorStore.create_sync(engine, Padded(), name)


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
        name, Padded(), client=chromadb.PersistentClient(path=str(place / "theirs"))
    ),
    "langchain-in-memory": lambda _place, _name: InMemoryVectorStore(Padded()),
    "langchain-strict": lambda _place, _name: StrictStore(Padded()),
    "langchain-faiss": _faiss,
    "langchain-qdrant": _qdrant,
    "langchain-milvus": _milvus,
}
"""Makes an empty LangChain store of each kind, from a directory and a name."""


@pytest.fixture(
    params=[
        "chroma",
        pytest.param("chroma-server", marks=pytest.mark.slow),
        "pgvector",
        *KINDS,
        pytest.param("langchain-pgvector", marks=pytest.mark.slow),
    ]
)
def backend(request: pytest.FixtureRequest, chroma_place: Path) -> Iterator[Backend]:
    """An empty index of each kind."""
    name = f"test-{uuid.uuid4().hex}"
    index: VectorIndex
    wrapped: Any = None
    if request.param == "chroma":
        index = ChromaIndex.open_directory(chroma_place, name)
    elif request.param == "chroma-server":
        index = ChromaIndex.from_client(request.getfixturevalue("server").client(), name)
    elif request.param == "pgvector":
        store = GraphStore(request.getfixturevalue("pgvector_url"))
        index = PgVectorIndex(store)
        index.close = store.close
    elif request.param == "langchain-pgvector":
        wrapped = _postgres(request.getfixturevalue("langchain_postgres"), name)
        index = VectorStoreIndex(wrapped)
    else:
        wrapped = KINDS[request.param](chroma_place, name)
        index = VectorStoreIndex(wrapped)
    yield Backend(index, wrapped)
    index.close()
