"""An embedded Chroma that is damaged while it is used, or when it is opened."""

import shutil
import stat
import threading
from pathlib import Path

import chromadb
import chromadb_rust_bindings
import numpy as np
import pytest
from chromadb.errors import InternalError
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.vectors.chroma import ChromaIndex
from crabpath_retrievers.vectors.chroma_directory import ChromaDirectory

PLAIN = DeterministicFakeEmbedding(size=16)
X = np.array([1, 0, 0], dtype=np.float32)
DOCUMENTS = [Document(f"Passage {n}", id=f"d{n}") for n in range(30)]


class PanicException(BaseException):
    """As Chroma's engine raises it."""


@pytest.fixture
def memory(tmp_path):
    """A memory with a note and thirty documents."""
    with CrabPath.open(tmp_path / "m", embeddings=PLAIN) as opened:
        opened.add_documents(DOCUMENTS, progress=None)
        opened.teach("Bees keep Ann.", namespace="ann")
        yield opened


def aside(memory) -> list[Path]:
    """What was set aside."""
    return sorted(Path(memory.index._directory.path).glob("broken-*"))


def wreck(memory) -> None:
    """Chroma's catalogue is overwritten beneath an open memory."""
    file = memory.index._directory.path / "chroma.sqlite3"
    file.write_bytes(b"\xa5" * file.stat().st_size)


def warnings(caplog) -> list[str]:
    """What was logged as a warning."""
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


def test_a_question_is_answered(memory, caplog):
    """One rebuild, one warning; what cannot be read is kept where only its user can read it."""
    wreck(memory)
    assert memory.retrieve("Passage 7", k=30).documents[0].node.id == "d7"
    assert memory.index.count() == 30
    (kept,) = aside(memory)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    (told,) = warnings(caplog)
    assert f"set aside in {kept}: they are indexed again from the graph store" in told
    found = memory.retrieve("Bees keep Ann.", namespace="ann").documents
    assert found[0].node.content == "Bees keep Ann."
    memory.close()
    caplog.clear()
    with CrabPath.open(kept.parent.parent, embeddings=PLAIN) as again:
        assert again.index.count() == 30
    assert warnings(caplog) == []


def test_an_ingest_goes_on(memory):
    """What it was about to publish is there, too."""
    wreck(memory)
    memory.add_documents([Document("Passage new", id="new")], progress=None)
    assert memory.index.find_existing(["new", "d0", "d29"]) == {"new", "d0", "d29"}
    assert not memory.store.catalog.has_unfinished_ingest()


def test_only_the_latest_is_kept(memory, monkeypatch):
    """Not one directory a fault."""
    moments = iter(["20260101T000000", "20260101T000001"])
    monkeypatch.setattr("time.strftime", lambda _: next(moments))
    for _ in range(2):
        wreck(memory)
        memory.retrieve("Passage 7")
    assert [one.name for one in aside(memory)] == ["broken-20260101T000001"]


def test_many_questions_at_once(memory, caplog):
    """Threads that notice together rebuild once."""
    wreck(memory)
    answers, begin = [], threading.Barrier(6)

    def ask(number):
        begin.wait()
        answers.append(memory.retrieve(f"Passage {number}", k=1).documents)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(answers)
    assert len(warnings(caplog)) == 1
    assert memory.index.count() == 30


def test_a_directory_that_is_deleted_while_it_is_open(memory):
    """It is made again, and locked."""
    shutil.rmtree(memory.index._directory.path)
    memory.add_documents([Document("Passage new", id="new")], progress=None)
    assert memory.retrieve("Passage 7", k=1).documents[0].node.id == "d7"
    assert memory.index.find_existing(["new", "d0", "d29"]) == {"new", "d0", "d29"}
    assert (memory.index._directory.path / "crabpath.lock").exists()


@pytest.mark.parametrize("kind", [InternalError, PanicException])
def test_a_fault_that_is_none_of_the_files(memory, monkeypatch, kind):
    """It is told as one, panics included; nothing is set aside."""

    def fail(**_asked):
        msg = "something else"
        raise kind(msg)

    monkeypatch.setattr(memory.index._records, "query", fail)
    with pytest.raises(StoreError, match="something else"):
        memory.retrieve("Passage 7")
    assert aside(memory) == []


def test_a_full_disk_is_no_damage(memory, monkeypatch):
    """The sentence says so, and nothing is set aside."""

    def full(**_asked):
        msg = "error returned from database: (code: 13) database or disk is full"
        raise InternalError(msg)

    monkeypatch.setattr(memory.index._records, "query", full)
    with pytest.raises(StoreError, match="is full: make room"):
        memory.retrieve("Passage 7")
    assert aside(memory) == []


def test_an_open_after_one_that_failed(tmp_path, monkeypatch):
    """As soon as there is room: Chroma keeps a system that never started."""
    ChromaIndex.open_directory(tmp_path).close()

    def full(*_given, **_named):
        msg = "error returned from database: (code: 13) database or disk is full"
        raise InternalError(msg)

    with monkeypatch.context() as patched:
        patched.setattr(chromadb_rust_bindings, "Bindings", full)
        with pytest.raises(StoreError, match="is full: make room"):
            ChromaIndex.open_directory(tmp_path)
    index = ChromaIndex.open_directory(tmp_path)
    index.upsert(["a"], [X], [""], [{}])
    assert index.search(X, 1) == ["a"]
    index.close()
    assert not [key for key in ChromaDirectory._known if key[1] == tmp_path]


def test_a_panic_at_the_start(tmp_path, monkeypatch):
    """What is there is set aside, and begun anew."""
    index = ChromaIndex.open_directory(tmp_path)
    index.upsert(["a"], [X], [""], [{}])
    index.close()
    real, failures = chromadb_rust_bindings.Bindings, iter([PanicException("index out of bounds")])

    def panic(*given, **named):
        if failure := next(failures, None):
            raise failure
        return real(*given, **named)

    monkeypatch.setattr(chromadb_rust_bindings, "Bindings", panic)
    index = ChromaIndex.open_directory(tmp_path)
    assert index.count() == 0
    assert [one.name[:7] for one in tmp_path.glob("broken-*")] == ["broken-"]
    index.close()


def test_collections_of_others_stay_where_they_are(tmp_path):
    """A directory that is shared with them is not set aside, but refused."""
    others = chromadb.PersistentClient(str(tmp_path / "v"))
    others.create_collection("mine").upsert(["x"], [[1.0, 0.0]])
    others.close()
    many = [Document(f"Passage {n}", id=f"d{n}") for n in range(1100)]
    with CrabPath.open(tmp_path / "m", embeddings=PLAIN, vectors=tmp_path / "v") as memory:
        memory.add_documents(many, split=False, progress=None)
        memory.retrieve("Passage 7")
    for file in (tmp_path / "v").glob("*/header.bin"):
        file.write_bytes(b"")
    with pytest.raises(StoreError, match=r"others keep collections there \(mine\)"):
        CrabPath.open(tmp_path / "m", embeddings=PLAIN, vectors=tmp_path / "v")
    elsewhere = tmp_path / "elsewhere"
    with CrabPath.open(tmp_path / "m", embeddings=PLAIN, vectors=elsewhere, reindex=True) as memory:
        assert memory.index.count() == 1100


def test_a_file_of_holes_is_not_kept(memory):
    """A torn index can claim terabytes; a backup of what was set aside must end."""
    directory = Path(memory.index._directory.path)
    segment = directory / "8d9f4c62-5f0a-4c8e-9a57-0d2f9a3b7c11"
    segment.mkdir()
    with (segment / "data_level0.bin").open("wb") as file:
        file.truncate(2**40)
    wreck(memory)
    assert memory.retrieve("Passage 7", k=1).documents[0].node.id == "d7"
    (kept,) = aside(memory)
    assert (kept / "chroma.sqlite3").is_file()
    assert not (kept / segment.name / "data_level0.bin").exists()
