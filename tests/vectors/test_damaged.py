"""An embedded Chroma that is damaged while it is used, or when it is opened."""

import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chromadb
import chromadb_rust_bindings
import numpy as np
import pytest
from chromadb.errors import InternalError
from filelock import FileLock
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import StoreError, StoreFullError
from crabpath_retrievers.vectors.chroma import ChromaIndex
from tests.seams import get_collection

PLAIN = DeterministicFakeEmbedding(size=16)
X = np.array([1, 0, 0], dtype=np.float32)
DOCUMENTS = [Document(f"Passage {n}", id=f"d{n}") for n in range(30)]
FULL = "error returned from database: (code: 13) database or disk is full"


class PanicException(BaseException):
    """As Chroma's engine raises it."""


@pytest.fixture
def memory(tmp_path):
    """A memory with a note and thirty documents."""
    with CrabPath.open(tmp_path / "m", embeddings=PLAIN) as opened:
        opened.add_documents(DOCUMENTS, progress=None)
        opened.teach("Bees keep Ann.", namespace="ann")
        yield opened


def get_place(memory) -> Path:
    """Directory of the vectors."""
    return Path(memory.store.location) / "vectors"


def find_broken(memory) -> list[Path]:
    """What was set aside."""
    return sorted(get_place(memory).glob("broken-*"))


def wreck(memory) -> None:
    """Chroma's catalogue is overwritten beneath an open memory."""
    file = get_place(memory) / "chroma.sqlite3"
    file.write_bytes(b"\xa5" * file.stat().st_size)


def get_warnings(caplog) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


def test_questions_are_answered(memory, monkeypatch, caplog):
    """One rebuild and one warning for all threads; what cannot be read is kept privately.

    A torn index can claim terabytes: a file of holes is not kept, so that a backup ends. Of several
    such directories the latest is kept.
    """
    place = get_place(memory)
    segment = place / "8d9f4c62-5f0a-4c8e-9a57-0d2f9a3b7c11"
    segment.mkdir()
    with (segment / "data_level0.bin").open("wb") as file:
        file.truncate(2**40)
    wreck(memory)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: memory.retrieve(f"Passage {n}", k=30), range(6)))
    assert [answer.documents[0].node.id for answer in answers] == [f"d{n}" for n in range(6)]
    assert memory.index.count() == 30
    (kept,) = find_broken(memory)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert (kept / "chroma.sqlite3").is_file()
    assert not (kept / segment.name / "data_level0.bin").exists()
    (warning,) = get_warnings(caplog)
    assert f"set aside in {kept}: they are indexed again from the graph store" in warning
    found = memory.retrieve("Bees keep Ann.", namespace="ann").documents
    assert found[0].node.content == "Bees keep Ann."
    monkeypatch.setattr("time.strftime", lambda *_: "20260101T000001")
    wreck(memory)
    memory.retrieve("Passage 7")
    assert [one.name for one in find_broken(memory)] == ["broken-20260101T000001"]
    memory.close()
    caplog.clear()
    with CrabPath.open(place.parent, embeddings=PLAIN) as again:
        assert again.index.count() == 30
    assert get_warnings(caplog) == []


@pytest.mark.parametrize("deleted", [False, True])
def test_an_ingest_goes_on(memory, deleted):
    """With what it was about to publish; a directory that is gone is made again, and locked."""
    place = get_place(memory)
    if deleted:
        shutil.rmtree(place)
    else:
        wreck(memory)
    memory.add_documents([Document("Passage new", id="new")], progress=None)
    assert memory.index.find_existing(["new", "d0", "d29"]) == {"new", "d0", "d29"}
    assert memory.retrieve("Passage 7", k=1).documents[0].node.id == "d7"
    assert not memory.store.catalog.has_unfinished_ingest()
    assert (place / "crabpath.lock").exists()


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (InternalError("something else"), "something else"),
        (PanicException("something else"), "something else"),
        (InternalError(FULL), "is full: make room"),
    ],
)
def test_other_faults_set_nothing_aside(memory, monkeypatch, failure, message):
    def fail(**_asked):
        raise failure

    monkeypatch.setattr(get_collection(memory.index), "query", fail)
    with pytest.raises(StoreError, match=message):
        memory.retrieve("Passage 7")
    assert find_broken(memory) == []


@pytest.mark.parametrize("failure", [InternalError(FULL), PanicException("index out of bounds")])
def test_a_failure_at_the_start(tmp_path, monkeypatch, failure):
    """Chroma keeps a system that never started; a panic sets aside what is there."""
    index = ChromaIndex.open_directory(tmp_path)
    index.upsert(["a"], [X], [""], [{}])
    index.close()
    real, failures = chromadb_rust_bindings.Bindings, iter([failure])

    def fail_once(*given, **named):
        if error := next(failures, None):
            raise error
        return real(*given, **named)

    monkeypatch.setattr(chromadb_rust_bindings, "Bindings", fail_once)
    left = int(isinstance(failure, InternalError))  # as soon as there is room
    if left:
        with pytest.raises(StoreError, match="is full: make room"):
            ChromaIndex.open_directory(tmp_path)
    index = ChromaIndex.open_directory(tmp_path)
    assert (index.count(), len(list(tmp_path.glob("broken-*")))) == (left, 1 - left)
    index.upsert(["b"], [X], [""], [{}])
    assert "b" in index.search(X, 2)
    index.close()
    with FileLock(tmp_path / "crabpath.lock", timeout=0):
        pass  # nobody holds the directory


def test_a_client_that_is_given_up_fails_in_words_of_ours(tmp_path, monkeypatch):
    """The next call of any kind makes a new one, for which the disk may be too full."""
    index = ChromaIndex.open_directory(tmp_path)
    index.upsert(["a"], [X], [""], [{}])

    def fail(*_given, **_named):
        raise InternalError(FULL)

    with monkeypatch.context() as full:
        full.setattr(get_collection(index), "upsert", fail)
        full.setattr(chromadb_rust_bindings, "Bindings", fail)
        for call in (
            lambda: index.upsert(["b"], [X], [""], [{}]),
            index.list_siblings,
            index.count,
        ):
            with pytest.raises(StoreError, match="is full: make room"):
                call()
    assert (index.count(), index.list_siblings()) == (1, [])
    index.close()


@pytest.mark.slow
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


FAILING_WRITES = """
import os, resource, signal, sys
from pathlib import Path
import numpy as np
from crabpath_retrievers.errors import StoreError, StoreFullError
from crabpath_retrievers.vectors.chroma import ChromaIndex

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
place = Path(sys.argv[1])
choose = np.random.default_rng(int(sys.argv[2]))
main = ChromaIndex.open_directory(place)
both = [main, main.open_sibling("notes-1")]

def write(index, name, many):
    vectors = choose.normal(size=(many, 32)).astype(np.float32)
    ids = [f"{name}-{n}" for n in range(many)]
    index.upsert(ids, list(vectors), ids, [{"text": "filler " * 50}] * many)

for index in both:
    write(index, "kept", 30)
size = (place / "chroma.sqlite3").stat().st_size
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + int(choose.integers(0, 30_000)), most))
failed = 0
for number in range(20):
    index = both[choose.integers(2)]
    try:
        write(index, number, 20) if choose.random() < 0.7 else index.delete([f"kept-{number}"])
        index.find_existing(["kept-29"])
    except StoreError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
for index in both:
    write(index, "later", 20)
    assert len(index.find_existing(["kept-29", *(f"later-{n}" for n in range(20))])) == 21
main.close()
assert failed
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_writes_that_fail_keep_no_later_one_waiting(tmp_path, seed):
    """As on a full disk, here by a bound on the length of files: Chroma would wait for 1,000 s."""
    command = [sys.executable, "-c", FAILING_WRITES, str(tmp_path), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not list(tmp_path.glob("broken-*"))


def test_a_disk_that_is_nearly_full_is_not_written_to(memory, monkeypatch):
    """Chroma would fail and have to be opened again, for which there is no room: so it answers."""
    free = shutil.disk_usage(get_place(memory))._replace(free=2**19)
    with monkeypatch.context() as full:
        full.setattr("crabpath_retrievers.vectors.chroma.disk_usage", lambda _: free)
        with pytest.raises(StoreFullError, match="is full: make room"):
            memory.add_documents([Document("Passage new", id="new")], progress=None)
        assert memory.retrieve("Passage 7", k=1).documents[0].node.id == "d7"
    memory.add_documents([Document("Passage newer", id="newer")], progress=None)
    assert memory.index.find_existing(["new", "newer"]) == {"new", "newer"}
