"""A memory of its own for every test, on both databases: maintenance touches all namespaces."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from maintained import Bag

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


@pytest.fixture
def open_chroma(location: str, tmp_path: Path) -> Callable[..., CrabPath]:
    """Opens one and the same memory with a real Chroma, as often as wanted."""
    return partial(CrabPath.open, location, embeddings=Bag(), vectors=str(tmp_path / "chroma"))
