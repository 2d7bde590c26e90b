"""Memories of the tests of transfer, and archives of one that has learned."""

import json
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
    """Made once; tests get copies."""
    place = tmp_path_factory.mktemp("taught")
    vectors = InMemoryVectorStore(EMBEDDINGS)
    with CrabPath.open(place / "memory", embeddings=EMBEDDINGS, vectors=vectors) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory)
        whole = memory.transfer.export(place / "whole").path
        mind = memory.transfer.export(place / "mind", namespace="default").path
    return Taught(place / "memory", vectors.store, whole, mind)


@pytest.fixture
def learned(taught, open_memory, tmp_path) -> CrabPath:
    """A memory that has learned."""
    vectors = InMemoryVectorStore(EMBEDDINGS)
    vectors.store.update(taught.vectors)
    return open_memory(shutil.copytree(taught.place, tmp_path / "learned"), vectors=vectors)


@pytest.fixture
def archive(taught) -> Path:
    """All of it, in a file."""
    return taught.whole


@pytest.fixture
def mind(taught) -> Path:
    """What its namespace has learned, in a file."""
    return taught.mind


@pytest.fixture(scope="session")
def sound(tmp_path_factory) -> dict[str, dict[str, bytes]]:
    """The members of archives with all that there is to spoil."""
    place = tmp_path_factory.mktemp("sound")
    vectors = InMemoryVectorStore(EMBEDDINGS)
    with CrabPath.open(place / "here", embeddings=EMBEDDINGS, vectors=vectors) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory)
        for user in ("ann", "eve"):
            turn = memory.retrieve("How is the harbour?").turn.id
            memory.record(Feedback(turn, 1.0, used=None, answer="The harbour.", user=user))
        memory.namespaces.snapshot(name="then")
        memory.maintenance.health()
        whole = memory.transfer.export(place / "all").path
        mind = memory.transfer.export(place / "mind", namespace="default").path
    return {"whole": members(whole), "mind": members(mind)}


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


@pytest.fixture(scope="session")
def write() -> Callable[..., None]:
    """Writes members as an archive; values given by name replace those of the manifest."""

    def _write(path: Path, held: dict[str, bytes], **changed) -> None:
        manifest = {**json.loads(held["manifest.json"]), **changed}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in {**held, "manifest.json": json.dumps(manifest).encode()}.items():
                file.writestr(name, data)

    return _write
