"""The life of a memory: opening, sharing, closing."""

import gc
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    CrabPathRetriever,
    NotFoundError,
    Settings,
    StoreError,
    StoreUnavailableError,
)
from crabpath_retrievers.config import LinkSettings

PLAIN = DeterministicFakeEmbedding(size=16)
DOCUMENTS = [Document(f"Passage number {n}.", id=f"d{n}") for n in range(5)]


def place_of(memory) -> Path:
    """The directory of a memory."""
    return Path(memory.store.name.removeprefix("sqlite:///")).parent


def opened(path=None, **options):
    """A memory with five documents."""
    memory = CrabPath.open(path, embeddings=PLAIN, **options)
    memory.add_documents(DOCUMENTS)
    return memory


def test_a_temporary_memory_goes_when_it_is_closed():
    """Without a path nothing is left behind."""
    memory = opened()
    place = place_of(memory)
    assert place.is_dir()
    memory.close()
    assert not place.exists()


def test_a_temporary_memory_goes_when_nobody_uses_it():
    """A retriever that is dropped without closing leaves nothing behind."""
    retriever = CrabPathRetriever.from_documents(DOCUMENTS, PLAIN)
    place = place_of(retriever.memory)
    del retriever
    gc.collect()
    assert not place.exists()


@pytest.mark.slow
def test_a_temporary_memory_goes_when_the_process_ends():
    """A program that never closes its memory leaves nothing behind."""
    program = (
        "from crabpath_retrievers import CrabPath\n"
        "memory = CrabPath.open()\n"
        "print(memory.store.name.removeprefix('sqlite:///'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not Path(done.stdout.strip()).parent.exists()


def test_a_temporary_memory_goes_when_opening_fails(tmp_path, monkeypatch):
    """A memory that cannot be opened leaves no temporary directory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigurationError, match="vectors cannot be"):
        CrabPath.open(vectors=5)
    assert list(tmp_path.iterdir()) == []


def test_a_memory_with_a_path_stays(tmp_path):
    """What was added is there when the directory is opened again."""
    opened(tmp_path / "memory").close()
    with CrabPath.open(tmp_path / "memory", embeddings=PLAIN) as memory:
        assert memory.info()["nodes"] == memory.index.count() == 5


def test_a_path_in_the_home_directory(tmp_path, monkeypatch):
    """A tilde stands for the home directory, as in a shell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with opened("~/memory") as memory:
        assert place_of(memory) == tmp_path / "memory"


def test_an_empty_path():
    """An empty path, such as an unset variable, is refused; it does not mean this directory."""
    with pytest.raises(ConfigurationError, match="the path is empty: pass a directory"):
        CrabPath.open("")


def test_files_are_private(tmp_path):
    """Only their user can enter the directory of a memory or read its database."""
    with opened(tmp_path / "memory"):
        assert stat.S_IMODE((tmp_path / "memory").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "memory" / "graph.sqlite").stat().st_mode) == 0o600


def test_with_closes(tmp_path):
    """A with block closes the memory, also when it fails."""
    with pytest.raises(KeyError), opened(tmp_path) as memory:
        raise KeyError
    with pytest.raises(StoreUnavailableError):
        memory.info()


@pytest.mark.parametrize(
    "use",
    [
        lambda memory: memory.retrieve("passage"),
        lambda memory: memory.add_documents(DOCUMENTS),
        lambda memory: memory.refresh([]),
        lambda memory: memory.forget("d1"),
        lambda memory: memory.explain("x"),
        lambda memory: memory.info(),
        lambda memory: CrabPathRetriever(memory=memory).invoke("passage"),
    ],
)
def test_use_after_close(tmp_path, use):
    """A closed memory says that it is closed and touches nothing."""
    memory = opened(tmp_path)
    memory.close()
    with pytest.raises(StoreUnavailableError, match="this memory was closed: open it again"):
        use(memory)


async def test_async_use_after_close(tmp_path):
    """A closed memory says so to async callers too."""
    memory = opened(tmp_path)
    memory.close()
    with pytest.raises(StoreUnavailableError, match="this memory was closed"):
        await memory.aio.retrieve("passage")


def test_closing_twice(tmp_path):
    """Closing again does nothing, and the directory is free for the next one."""
    memory = opened(tmp_path)
    memory.close()
    memory.close()
    with opened(tmp_path) as again:
        assert again.info()["nodes"] == 5  # what `opened` added


def test_two_memories_on_one_directory(tmp_path):
    """Within one process two memories share a directory and see each other's documents at once."""
    with opened(tmp_path) as first, CrabPath.open(tmp_path, embeddings=PLAIN) as second:
        second.add_documents([Document("Passage number 5.", id="d5")])
        (best, *others) = first.retrieve("Passage number 5.", k=10).documents
        assert (best.node.id, len(others)) == ("d5", 5)


def test_closing_one_of_two_memories_on_one_directory(tmp_path):
    """A memory stays usable when another one on the same directory is closed."""
    with opened(tmp_path) as first:
        CrabPath.open(tmp_path, embeddings=PLAIN).close()
        assert len(first.retrieve("passage", k=10).documents) == 5
        first.add_documents([Document("Passage number 5.", id="d5")])
        assert len(first.retrieve("passage", k=10).documents) == 6


def test_closing_a_memory_on_another_directory(tmp_path):
    """A memory stays usable, and can be opened again, when one elsewhere is closed."""
    with opened(tmp_path / "a") as first:
        opened(tmp_path / "b").close()
        with CrabPath.open(tmp_path / "a", embeddings=PLAIN) as again:
            again.add_documents([Document("Passage number 5.", id="d5")])
        assert len(first.retrieve("passage", k=10).documents) == 6


def test_many_threads(tmp_path):
    """Threads may add and ask at once; every document arrives once."""
    with opened(tmp_path) as memory:

        def work(number):
            memory.add_documents([Document(f"Thread {number}.", id=f"t{number}")])
            memory.retrieve(f"Thread {number}.")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert memory.info()["nodes"] == memory.index.count() == 13
        assert memory.info()["turns"] == 8


def test_opening_without_creating(tmp_path):
    """create=False opens a memory that exists and refuses a place where there is none."""
    opened(tmp_path / "memory").close()
    with CrabPath.open(tmp_path / "memory", embeddings=PLAIN, create=False) as memory:
        assert memory.info()["nodes"] == 5
    with pytest.raises(NotFoundError, match="there is no memory at"):
        CrabPath.open(tmp_path / "other", create=False)
    assert not (tmp_path / "other").exists()


def test_opening_an_sqlite_url_without_creating(tmp_path):
    """create=False refuses an SQLite URL whose file does not exist, and makes no file."""
    with pytest.raises(NotFoundError, match="there is no memory at"):
        CrabPath.open(f"sqlite:///{tmp_path}/graph.sqlite", vectors=tmp_path / "v", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_memory_is_told_without_password(postgres_url, tmp_path):
    """The message about a missing memory hides the password of its URL."""
    url = postgres_url.replace("postgres@", "postgres:secret@")
    with pytest.raises(NotFoundError, match=r"postgres:\*\*\*@"):
        CrabPath.open(url, vectors=tmp_path, create=False)


def test_similar_documents_are_linked_when_asked_for(embeddings):
    """With the setting, a document points at its nearest neighbour, here its paraphrase."""
    settings = Settings(links=LinkSettings(similar_neighbours=1, min_similarity=0.5))
    texts = {
        "a": "The deploy runs on Friday.",
        "b": "Friday is the day of the deploy.",
        "c": "Moss",
    }
    with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
        memory.add_documents(Document(text, id=name) for name, text in texts.items())
        keys = {head.key: head.id for head in memory.store.walk.get_nodes(list(texts))}
        clock = memory.store.walk.get_clock("default")
        pointers = memory.store.walk.get_outgoing_edges(list(keys), clock).pointers
        assert {(keys[p.source], p.target.id) for p in pointers} == {("a", "b"), ("b", "a")}


def test_info(tmp_path):
    """Info tells what is held and where."""
    with opened(tmp_path) as memory:
        memory.retrieve("passage", namespace="ada")
        info = memory.info()
    assert info["store"] == f"sqlite:///{tmp_path}/graph.sqlite"
    assert info["vectors"] == f"Chroma in {tmp_path}/vectors"
    assert info["embedder"] == "DeterministicFakeEmbedding"
    assert (info["nodes"], info["sources"], info["turns"]) == (5, 5, 1)
    assert info["namespaces"] == {"ada": 1}


def test_forget(tmp_path):
    """What is forgotten is gone from both stores, by id, by source and by namespace."""
    with opened(tmp_path) as memory:
        memory.add_documents([Document("From a file.", metadata={"source": "notes.txt"})])
        turn = memory.retrieve("passage", namespace="ada").turn
        assert memory.forget("d0") == 1
        assert memory.forget(["d1", "d2", "nope"]) == 2
        assert memory.forget(source="notes.txt") == 1
        assert memory.info()["nodes"] == memory.index.count() == 2
        memory.forget(namespace="ada")
        assert memory.info()["namespaces"] == {}
        with pytest.raises(NotFoundError):
            memory.explain(turn.id)


def test_failing_to_release_one_part_releases_the_others(tmp_path):
    """When the vector store cannot be closed, the database is closed all the same."""

    class Stuck:
        """A vector index that cannot be closed."""

        description = "stuck"

        def upsert(self, ids, vectors, texts, metadatas):
            """Accept nothing."""

        def filter_ids(self, ids, vector, filter):  # noqa: A002  the protocol's name
            """Match nothing."""
            return set()

        def close(self):
            """Fail."""
            msg = "stuck"
            raise StoreError(msg)

    memory = CrabPath.open(tmp_path, embeddings=PLAIN, vectors=Stuck())
    with pytest.raises(StoreError, match="stuck"):
        memory.close()
    assert memory.store._engine.pool.checkedin() == 0
