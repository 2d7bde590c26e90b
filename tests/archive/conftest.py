"""Memories of the archive tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from learned_memory import EMBEDDINGS, corpus, teach

from crabpath_retrievers import CrabPath


@pytest.fixture
def open_memory() -> Iterator[Callable[..., CrabPath]]:
    """Opens memories; each has vectors of its own beside the graph store."""
    opened: list[CrabPath] = []

    def open_memory(place: str | Path, **options) -> CrabPath:
        options.setdefault("vectors", InMemoryVectorStore(EMBEDDINGS))
        memory = CrabPath.open(place, embeddings=EMBEDDINGS, **options)
        opened.append(memory)
        return memory

    yield open_memory
    for memory in opened:
        memory.close()


@pytest.fixture
def learned(open_memory, tmp_path) -> CrabPath:
    """A memory that has learned."""
    memory = open_memory(tmp_path / "learned")
    memory.add_documents(corpus(), split=False)
    teach(memory)
    return memory


@pytest.fixture
def archive(learned, tmp_path) -> Path:
    """All of it, in a file."""
    return learned.transfer.export(tmp_path / "all.crabpath").path
