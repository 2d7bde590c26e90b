"""An index that does not hold what the database does, and a database that does not."""

import shutil

import chromadb
import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import ConfigurationError, CrabPath, InvalidInputError, StoreError

PLAIN = DeterministicFakeEmbedding(size=16)


def pages(first, last) -> list[Document]:
    """Documents by number."""
    return [Document(f"Passage {n}", id=f"d{n}") for n in range(first, last)]


def opened(path, **given) -> CrabPath:
    """The memory."""
    return CrabPath.open(path, embeddings=PLAIN, **given)


def warnings(caplog) -> list[str]:
    """What was logged as a warning."""
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


@pytest.fixture
def path(tmp_path):
    """A memory with two hundred documents."""
    with opened(tmp_path / "m") as memory:
        memory.add_documents(pages(0, 200), progress=None)
    return tmp_path / "m"


def test_a_whole_index_is_left_alone(path, caplog):
    """No word is said."""
    opened(path).close()
    assert warnings(caplog) == []


@pytest.mark.parametrize("lost", [range(199, 200), range(50), range(200)])
def test_vectors_that_are_missing_come_back(path, caplog, lost):
    """However many; one warning says how many."""
    with opened(path) as memory:
        memory.index.delete([f"d{n}" for n in lost])
    caplog.clear()
    with opened(path) as memory:
        assert memory.index.count() == 200
        for n in (0, 25, 199):
            vector = np.asarray(PLAIN.embed_query(f"Passage {n}"), dtype=np.float32)
            assert memory.index.search(vector, 1) == [f"d{n}"]
    (told,) = warnings(caplog)
    assert f"{len(lost)}" in told
    assert "indexed again from the graph store" in told


def test_a_deleted_directory_is_filled(path, caplog):
    """As from a backup without it."""
    shutil.rmtree(path / "vectors")
    with opened(path) as memory:
        assert memory.index.count() == 200
    (told,) = warnings(caplog)
    assert told.startswith("all 200 vectors are missing")


def test_an_interrupted_filling_goes_on(path, monkeypatch):
    """The next open does the rest."""
    shutil.rmtree(path / "vectors")
    with monkeypatch.context() as patched:
        patched.setattr("crabpath_retrievers.ingest.pipeline._INDEX_BATCH", 64)
        patched.setattr(
            "crabpath_retrievers.vectors.chroma.ChromaIndex.upsert", failing_after(2), raising=True
        )
        with pytest.raises(StoreError, match="killed"):
            opened(path)
    with opened(path) as memory:
        assert memory.index.count() == 200


def failing_after(calls):
    """Writes that fail after some."""
    from crabpath_retrievers.vectors.chroma import ChromaIndex

    real, left = ChromaIndex.upsert, iter(range(calls))

    def upsert(*given):
        if next(left, None) is None:
            msg = "killed"
            raise StoreError(msg)
        real(*given)

    return upsert


@pytest.mark.parametrize("size", [0, None])
def test_a_database_that_is_lost(path, size):
    """Nothing is begun beside the vectors of a memory that was lost."""
    (path / "graph.sqlite").unlink()
    if size is not None:
        (path / "graph.sqlite").touch(0o600)
    before = sorted(path.rglob("*"))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"200 vectors in .*restore graph.sqlite from a back"):
            opened(path)
    assert sorted(path.rglob("*")) == before
    (path / "vectors").rename(path / "away")
    with opened(path) as memory:
        assert memory.info()["nodes"] == 0


def test_a_new_memory_over_the_vectors_of_another(path, tmp_path):
    """A directory that is taken is refused, and not touched."""
    with pytest.raises(InvalidInputError, match="holds 200 vectors already"):
        opened(tmp_path / "new", vectors=path / "vectors")
    with opened(tmp_path / "other") as memory:
        memory.add_documents([Document("Another", id="x")], progress=None)
    for reindex in (False, True):
        with pytest.raises(ConfigurationError, match="200 vectors, but none of this memory"):
            opened(tmp_path / "other", vectors=path / "vectors", reindex=reindex)
    with opened(path) as memory:
        assert memory.index.count() == 200


def test_a_server_that_holds_nothing(path):
    """It may be the wrong one: it is filled when that is asked for."""
    client = chromadb.EphemeralClient()
    with pytest.raises(ConfigurationError, match=r"is empty, .* 200 chunks: check the URL"):
        opened(path, vectors=client)
    with opened(path, vectors=client, reindex=True) as memory:
        assert memory.index.count() == 200
    opened(path, vectors=client).close()
    client.delete_collection("crabpath")
    client.close()


@pytest.fixture
def restored(path):
    """The database is older than the vectors: of 600 vectors only 20 have a document."""
    with opened(path) as memory:
        memory.forget([f"d{n}" for n in range(20, 200)])
    shutil.copy(path / "graph.sqlite", path / "backup")
    with opened(path) as memory:
        memory.add_documents(pages(20, 600), split=False, progress=None)
        memory.teach("Bees keep Ann.", namespace="ann")
        memory.maintenance.reindex()
    shutil.move(path / "backup", path / "graph.sqlite")
    return path


def test_vectors_without_documents_do_not_empty_the_answers(restored, caplog):
    """Search goes on until it has found what stands; reindex deletes the rest."""
    with opened(restored) as memory:
        assert warnings(caplog)[0].startswith("580 vectors in")
        for n in range(0, 600, 60):
            assert len(memory.retrieve(f"Passage {n}", k=4).documents) == 4
            vector = np.asarray(PLAIN.embed_query(f"Passage {n}"))
            assert len(memory._services.scope("default").near(vector, 4)) == 4
        assert memory.maintenance.reindex() == 20
        assert memory.index.beside("notes-1").count() == 0
        assert len(memory.retrieve("Passage 7", k=4).documents) == 4


def test_the_usual_search_asks_once(path, monkeypatch):
    """Nothing is asked again where every hit is known."""
    with opened(path) as memory:
        asked = []
        search = memory.index.search
        monkeypatch.setattr(
            memory.index, "search", lambda *given: asked.append(given) or search(*given)
        )
        memory.retrieve("Passage 7")
        assert len(asked) == 1


def test_what_belongs_to_others_stays(embeddings_store):
    """Nothing is deleted from a store of somebody else."""
    store, path = embeddings_store
    with opened(path, vectors=store) as memory:
        memory.add_documents(pages(0, 3), progress=None)
        store.add_documents([Document("Somebody else's", id="theirs")])
        memory.maintenance.reindex()
    assert [one.id for one in store.get_by_ids(["theirs"])] == ["theirs"]


@pytest.fixture
def embeddings_store(tmp_path):
    """An in-memory store and a place."""
    from langchain_core.vectorstores import InMemoryVectorStore

    return InMemoryVectorStore(PLAIN), tmp_path / "m"
