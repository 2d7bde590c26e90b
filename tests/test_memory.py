"""The life of a memory: opening, sharing, closing."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    NotFoundError,
    StoreError,
    StoreUnavailableError,
    VectorIndex,
)
from tests.seams import get_engine

PLAIN = DeterministicFakeEmbedding(size=16)
DOCUMENTS = [Document(f"Passage number {n}.", id=f"d{n}") for n in range(5)]
SIXTH = [Document("Passage number 5.", id="d5")]


def place_of(memory) -> Path:
    """The directory of a memory."""
    return Path(memory.store.name.removeprefix("sqlite:///")).parent


def opened(path=None, **options):
    """A memory with five documents."""
    memory = CrabPath.open(path, embeddings=PLAIN, **options)
    memory.add_documents(DOCUMENTS)
    return memory


@pytest.mark.slow
def test_a_temporary_memory_goes_when_it_is_closed_or_dropped():
    memory = opened()
    place = place_of(memory)
    assert place.is_dir()
    memory.close()
    assert not place.exists()
    retriever = CrabPathRetriever.from_documents(DOCUMENTS, PLAIN)
    place = place_of(retriever.memory)
    del retriever
    gc.collect()
    assert not place.exists()


@pytest.mark.slow
async def test_many_ingests_keep_neither_questions_nor_probes_waiting():
    """More of them than there are threads, while none of them goes on."""
    come = threading.Event()

    class Slow(DeterministicFakeEmbedding):
        def embed_documents(self, texts):
            if any("slow" in text for text in texts):
                assert come.wait(120)
            return super().embed_documents(texts)

    memory = await asyncio.to_thread(CrabPath.open, embeddings=Slow(size=16))
    await memory.aio.add_documents(DOCUMENTS)
    pages = [Document(f"A slow page {n}.", id=f"s{n}") for n in range(40)]
    adding = [asyncio.create_task(memory.aio.add_documents([page])) for page in pages]
    await asyncio.sleep(0)
    try:
        assert (await asyncio.wait_for(memory.aio.ready(), 60)).ready
        found = await asyncio.wait_for(memory.aio.retrieve("Passage number 3.", k=1), 60)
        said = memory.aio.record(found, outcome=True)
        assert (await asyncio.wait_for(said, 60)).status == "applied"
        assert not any(task.done() for task in adding)
    finally:
        come.set()
    assert sum(report.added for report in await asyncio.gather(*adding)) == 40
    await memory.aio.close()


def test_a_memory_with_a_path_stays(tmp_path, monkeypatch):
    """A tilde stands for the home directory, as in a shell; info says what is held and where."""
    monkeypatch.setenv("HOME", str(tmp_path))
    opened("~/memory").close()
    with CrabPath.open(tmp_path / "memory", embeddings=PLAIN, create=False) as memory:
        memory.retrieve("passage", namespace="ada")
        info = memory.info()
        assert memory.index.count() == 5
    assert info["store"] == f"sqlite:///{tmp_path}/memory/graph.sqlite"
    assert info["vectors"] == f"Chroma in {tmp_path}/memory/vectors"
    assert info["embedder"] == "DeterministicFakeEmbedding"
    assert (info["nodes"], info["sources"], info["turns"]) == (5, 5, 1)
    assert info["namespaces"] == {"ada": 1}


async def test_use_after_close(tmp_path):
    """A closed memory says that it is closed and touches nothing; closing again does nothing."""
    with pytest.raises(KeyError), opened(tmp_path) as memory:
        raise KeyError
    memory.close()
    for use in (
        lambda: memory.retrieve("passage"),
        lambda: memory.add_documents(DOCUMENTS),
        lambda: memory.forget("d1"),
        lambda: memory.explain("x"),
        lambda: memory.graph.neighbors("a"),
        memory.info,
        lambda: CrabPathRetriever(memory=memory).invoke("passage"),
    ):
        with pytest.raises(StoreUnavailableError, match="this memory was closed: open it again"):
            use()
    for awaited in (memory.aio.retrieve("passage"), memory.aio.learning.anchor("a")):
        with pytest.raises(StoreUnavailableError, match="this memory was closed"):
            await awaited
    with opened(tmp_path) as again:
        assert again.info()["nodes"] == 5  # what `opened` added


class WaitingEmbedding(DeterministicFakeEmbedding):
    """Embeds documents when it may."""

    size: int = 16
    go: Any

    def embed_documents(self, texts):
        self.go.wait(60)
        return super().embed_documents(texts)


@pytest.mark.slow
async def test_ingests_that_wait_leave_threads_to_questions():
    go = threading.Event()
    go.set()
    with CrabPath.open(embeddings=WaitingEmbedding(go=go)) as memory:
        memory.add_documents(DOCUMENTS, progress=None)
        retriever = memory.as_retriever(k=2)
        await retriever.ainvoke("Is the embedder the same?")
        go.clear()
        adding = [
            asyncio.create_task(
                memory.aio.add_documents([Document(f"New {n}.", id=f"new{n}")], progress=None)
            )
            for n in range(40)
        ]
        removing = [asyncio.create_task(memory.aio.forget(f"d{n}")) for n in (3, 4)]
        try:
            found = await asyncio.wait_for(retriever.ainvoke("Passage number 1."), 30)
            assert len(found) == 2
            state = await asyncio.wait_for(memory.aio.documents(), 30)
            assert len(state) >= 3
            assert not any(task.done() for task in adding)
        finally:
            go.set()
            await asyncio.gather(*adding, *removing)
        assert len(memory.documents()) == 43


def test_memories_of_one_process(tmp_path):
    """Two on a directory see each other's documents at once; closing others disturbs none."""
    with opened(tmp_path / "a") as first:
        opened(tmp_path / "b").close()
        with CrabPath.open(tmp_path / "a", embeddings=PLAIN) as second:
            second.add_documents(SIXTH)
            (best, *others) = first.retrieve("Passage number 5.", k=10).documents
            assert (best.node.id, len(others)) == ("d5", 5)
        assert len(first.retrieve("passage", k=10).documents) == 6
        first.add_documents([Document("Passage number 6.", id="d6")])
        assert len(first.retrieve("passage", k=10).documents) == 7


def test_many_threads(tmp_path):
    """Threads may add and ask at once; every document arrives once."""
    with opened(tmp_path) as memory:

        def work(number):
            memory.add_documents([Document(f"Thread {number}.", id=f"t{number}")])
            memory.retrieve(f"Thread {number}.")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert memory.info()["nodes"] == memory.index.count() == 13
        assert memory.info()["turns"] == 8


@pytest.mark.parametrize("place", ["{}/other", "sqlite:///{}/graph.sqlite"])
def test_opening_without_creating(tmp_path, place):
    """A place where there is no memory is refused, and nothing is made there."""
    with pytest.raises(NotFoundError, match="there is no memory at"):
        CrabPath.open(place.format(tmp_path), vectors=tmp_path / "v", create=False)
    assert list(tmp_path.iterdir()) == []


def test_failing_to_release_one_part_releases_the_others(tmp_path):
    """When the vector store cannot be closed, the database is closed all the same."""

    class Stuck(VectorIndex):
        """A vector index that cannot be closed."""

        description = "stuck"
        upsert = delete = search = filter_ids = None

        def close(self):
            msg = "stuck"
            raise StoreError(msg)

    memory = CrabPath.open(tmp_path, embeddings=PLAIN, vectors=Stuck())
    with pytest.raises(StoreError, match="stuck"):
        memory.close()
    assert get_engine(memory.store).pool.checkedin() == 0
