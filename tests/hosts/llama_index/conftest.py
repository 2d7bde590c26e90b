"""A retriever over real passages, as LlamaIndex users make one, and models of LlamaIndex."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer
from langchain_core.documents import Document as Passage
from langchain_core.embeddings import Embeddings
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_models import CountingEmbedding, HttpLLM

from llama_index.retrievers.crabpath import CrabPathRetriever


@pytest.fixture(scope="session")
def documents(passages: list[Passage]) -> list[Document]:
    return [
        Document(id_=passage.id, text=passage.page_content, metadata=dict(passage.metadata))
        for passage in passages
    ]


@pytest.fixture
def embed_model(embeddings: Embeddings) -> CountingEmbedding:
    """A LlamaIndex model that notes what it embeds."""
    return CountingEmbedding(embeddings)


@pytest.fixture(scope="session")
def shared(embeddings: Embeddings, documents: list[Document]) -> Iterator[CrabPathRetriever]:
    """A retriever that no test teaches."""
    made = CrabPathRetriever.from_documents(documents, embeddings, similarity_top_k=4)
    yield made
    made.memory.close()


@pytest.fixture
def retriever(place: Path, embeddings: Embeddings) -> Iterator[CrabPathRetriever]:
    """A retriever of the test's own, which it may teach."""
    made = CrabPathRetriever.from_existing(place, embeddings, similarity_top_k=4)
    yield made
    made.memory.close()


@pytest.fixture
def closing() -> Iterator[Callable[[CrabPathRetriever], CrabPathRetriever]]:
    """Closes the memories of the retrievers that it is given when the test ends."""
    given: list[CrabPathRetriever] = []

    def close_later(made: CrabPathRetriever) -> CrabPathRetriever:
        given.append(made)
        return made

    yield close_later
    for made in given:
        made.memory.close()


@pytest.fixture
def llm(chat_server: ChatServer) -> HttpLLM:
    """A model of LlamaIndex that asks the local chat server."""
    return HttpLLM(url=chat_server.url)


@pytest.fixture
def index(documents: list[Document], embed_model: CountingEmbedding) -> VectorStoreIndex:
    """LlamaIndex's own index over the passages, under node ids that we choose."""
    nodes = [
        TextNode(id_=f"node-{document.id_}", text=document.text, metadata=document.metadata)
        for document in documents
    ]
    return VectorStoreIndex(nodes, embed_model=embed_model)
