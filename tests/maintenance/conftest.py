"""A memory of its own for every test, on both databases: maintenance touches all namespaces."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
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
    with CrabPath.open(
        location, embeddings=VECTORS, vectors=InMemoryVectorStore(VECTORS)
    ) as opened:
        opened.add_documents(PAGES, split=False)
        yield opened


class Bag(Embeddings):
    """Texts by their words: near where they share most of them."""

    def embed_query(self, text: str) -> list[float]:
        """Counts of words, in 256 numbers."""
        found = np.zeros(256)
        for word in text.lower().split():
            found[int(sha256(word.strip(".,!").encode()).hexdigest()[:8], 16) % 256] += 1.0
        return list(found / max(1.0, float(np.linalg.norm(found))))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One after the other."""
        return [self.embed_query(text) for text in texts]


STEPS_OF_A_DEPLOY = (
    "Run the tests before you deploy the service to the cluster, then wait until the build is "
    "green, announce it in the channel, press the release button and watch the dashboard."
)
TWINS = [
    Document(STEPS_OF_A_DEPLOY, id="new", metadata={"source": "b.md"}),
    Document("The *red* panda eats bamboo in the mountains.", id="panda"),
    Document(f"{STEPS_OF_A_DEPLOY}\n", id="old", metadata={"source": "a.md"}),
    Document("A database keeps rows; an index finds them.", id="rows"),
]


@pytest.fixture
def bag() -> Bag:
    """An embedder that reads words."""
    return Bag()


@pytest.fixture
def opening(location: str, bag: Bag, tmp_path: Path) -> Callable[..., CrabPath]:
    """Opens one and the same memory, with a real Chroma."""
    index = InMemoryVectorStore(bag)

    def opened(**options: Any) -> CrabPath:
        return CrabPath.open(location, embeddings=bag, vectors=index, **options)

    return opened


@pytest.fixture
def twins(opening: Callable[..., CrabPath]) -> Iterator[CrabPath]:
    """Two documents that say the same, and two others; ``new`` is the older one in the store."""
    with opening() as memory:
        memory.add_documents(TWINS, split=False)
        yield memory


@pytest.fixture
def copy_of_twins() -> Callable[[str], Document]:
    """Another document that says what the twins say."""
    return lambda name: Document(STEPS_OF_A_DEPLOY, id=name, metadata={"source": f"{name}.md"})
