"""Memories of the tests of transfer, and archives of one that has learned."""

import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from learned_memory import EMBEDDINGS, corpus, teach

from crabpath_retrievers import CrabPath, Feedback


class Taught(NamedTuple):
    """A memory that has learned, closed, and the archives of it."""

    place: Path
    vectors: dict[str, Any]
    whole: Path
    mind: Path


@pytest.fixture
def open_memory() -> Iterator[Callable[..., CrabPath]]:
    """Opens memories; each has vectors of its own beside the graph store."""
    opened: list[CrabPath] = []

    def open_memory(place: str | Path, *, documents: int = 0, **options) -> CrabPath:
        options.setdefault("vectors", InMemoryVectorStore(EMBEDDINGS))
        memory = CrabPath.open(place, embeddings=EMBEDDINGS, **options)
        opened.append(memory)
        if documents:
            memory.add_documents(corpus(documents), split=False)
        return memory

    yield open_memory
    for memory in opened:
        memory.close()


@pytest.fixture(scope="session")
def taught(tmp_path_factory) -> Taught:
    """Made once, with all that an archive may hold; tests get copies."""
    place = tmp_path_factory.mktemp("taught")
    vectors = InMemoryVectorStore(EMBEDDINGS)
    with CrabPath.open(place / "memory", embeddings=EMBEDDINGS, vectors=vectors) as memory:
        memory.add_documents(corpus(), split=False)
        for user in ("ann", "eve"):
            turn = memory.retrieve("How is the harbour?").turn.id
            memory.record(Feedback(turn, 1.0, used=None, answer="The harbour.", user=user))
        teach(memory)
        memory.namespaces.snapshot(name="then")
        memory.maintenance.health()
        whole = memory.transfer.export(place / "whole").path
        mind = memory.transfer.export(place / "mind", namespace="default").path
    return Taught(place / "memory", vectors.store, whole, mind)


@pytest.fixture
def learned(taught, open_memory, tmp_path) -> CrabPath:
    """A memory that has learned."""
    vectors = InMemoryVectorStore(EMBEDDINGS)
    vectors.store.update(taught.vectors)
    return open_memory(shutil.copytree(taught.place, tmp_path / "learned"), vectors=vectors)


@pytest.fixture(scope="session")
def sound(taught) -> dict[str, dict[str, bytes]]:
    """The members of both archives, to be spoilt."""
    return {"whole": members(taught.whole), "mind": members(taught.mind)}


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, CrabPath]]:
    """Memories that take sound archives of each kind, and refuse bad ones without a trace."""
    with (
        CrabPath.open(embeddings=EMBEDDINGS) as empty,
        CrabPath.open(embeddings=EMBEDDINGS) as filled,
    ):
        filled.add_documents(corpus(), split=False)
        yield {"whole": empty, "mind": filled}


def members(path: Path) -> dict[str, bytes]:
    """All members of an archive by name."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}
