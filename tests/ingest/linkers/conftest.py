"""Helpers of the linker tests: the edges of a kind, for every order of ingest."""

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers.config import LinkSettings, Settings
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.crabpath import CrabPath

Pairs = set[tuple[str, str]]


@pytest.fixture
def fresh(tmp_path, embedder) -> Iterator[Callable[..., CrabPath]]:
    """Opens empty memories with the given link settings."""
    opened: list[CrabPath] = []

    def open_memory(**links: object) -> CrabPath:
        path = tmp_path / f"memory{len(opened)}"
        settings = Settings(links=LinkSettings(**links))
        vectors = InMemoryVectorStore(embedder)
        opened.append(CrabPath.open(path, embeddings=embedder, vectors=vectors, settings=settings))
        return opened[-1]

    yield open_memory
    for memory in opened:
        memory.close()


@pytest.fixture
def linked(fresh, joined) -> Callable[..., Pairs]:
    """Edges of a kind when the batches are added one after the other."""

    def add(kind: EdgeKind, *batches: Sequence[Document], **links: object) -> Pairs:
        memory = fresh(**links)
        for batch in batches:
            memory.add_documents(batch)
        return joined(memory, kind)

    return add


@pytest.fixture
def in_any_order(linked) -> Callable[..., Pairs]:
    """Edges of a kind, after checking that they are the same for every order of the documents."""

    def add(kind: EdgeKind, *documents: Document, **links: object) -> Pairs:
        together = linked(kind, documents, **links)
        for order in permutations(documents):
            assert linked(kind, *([document] for document in order), **links) == together
        return together

    return add
