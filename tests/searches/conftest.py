"""A memory of eighty documents on both databases, with regions; vectors that mean nothing."""

from collections.abc import Callable, Iterator

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import LearningSettings


@pytest.fixture
def open_memory(location: str) -> Callable[..., CrabPath]:
    """Opens the memory of the test with learning settings, as often as wanted."""
    vectors = DeterministicFakeEmbedding(size=16)
    index = InMemoryVectorStore(vectors)

    def open_memory(**learning) -> CrabPath:
        settings = Settings(learning=LearningSettings(**learning))
        return CrabPath.open(location, embeddings=vectors, vectors=index, settings=settings)

    with open_memory() as memory:
        documents = [Document(f"text {i} word{i}", id=f"d{i}") for i in range(80)]
        memory.add_documents(documents, split=False)
    return open_memory


@pytest.fixture
def memory(open_memory) -> Iterator[CrabPath]:
    """Learns at once, by default settings."""
    with open_memory() as opened:
        yield opened


@pytest.fixture
def joined(memory) -> Callable[..., CrabPath]:
    """Sets edges, given as ``(source, target, weight)``, of one type."""

    def join(*edges, kind="caused_success", namespace="default") -> CrabPath:
        for source, target, weight in edges:
            done = memory.graph.add_edge(source, target, kind, weight, namespace=namespace)
            assert done.status == "applied"
        return memory

    return join
