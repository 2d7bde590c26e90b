"""A memory of its own for every test, on both databases: maintenance touches all namespaces."""

from collections.abc import Iterator

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath

VECTORS = DeterministicFakeEmbedding(size=16)
PAGES = [
    Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
    for n in range(12)
]


@pytest.fixture
def memory(location: str) -> Iterator[CrabPath]:
    """Twelve pages; page n mentions page n + 1."""
    index = InMemoryVectorStore(VECTORS)
    with CrabPath.open(location, embeddings=VECTORS, vectors=index) as opened:
        opened.add_documents(PAGES, split=False)
        yield opened
