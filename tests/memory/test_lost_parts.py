"""Parts of a memory that are lost, of another memory, locked, or gone while it is used."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor, wait

import chromadb
import numpy as np
import pytest
import sqlalchemy as sa
from filelock import FileLock
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from proxy import Proxy
from typer.testing import CliRunner

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    CrabPathError,
    Feedback,
    InvalidInputError,
    Settings,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    examine,
)
from crabpath_retrievers.cli import app
from crabpath_retrievers.config import IngestSettings
from crabpath_retrievers.errors import StoreLockedError
from tests.seams import set_bounds

pytestmark = pytest.mark.slow

PLAIN = DeterministicFakeEmbedding(size=16)


def pages(first, last) -> list[Document]:
    return [Document(f"Passage {n}", id=f"d{n}") for n in range(first, last)]


def opened(path, **given) -> CrabPath:
    return CrabPath.open(path, embeddings=PLAIN, **given)


def warnings(caplog) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A memory with two hundred documents."""
    place = tmp_path_factory.mktemp("filled") / "m"
    with opened(place) as memory:
        memory.add_documents(pages(0, 200), progress=None)
    return place


@pytest.fixture
def path(filled, tmp_path):
    """A copy of it for the test alone."""
    return shutil.copytree(filled, tmp_path / "m")


@pytest.mark.parametrize("lost", [range(0), range(199, 200), range(50), range(200), None])
def test_vectors_that_are_missing_come_back(path, caplog, lost):
    """However many, or the whole directory; one warning says how many, none where all is well."""
    if lost is None:
        shutil.rmtree(path / "vectors")
    else:
        with opened(path) as memory:
            memory.index.delete([f"d{n}" for n in lost])
    caplog.clear()
    with opened(path) as memory:
        assert memory.index.count() == 200
        # Asked by id: a search is approximate, the more so where all of an index was deleted once.
        every = {f"d{n}" for n in range(200)}
        assert memory.index.find_existing(sorted(every)) == every
    said = warnings(caplog)
    assert len(said) == (lost != range(0))
    for one in said:
        assert f"{200 if lost is None else len(lost)}" in one
        assert "indexed again from the graph store" in one
        assert one.startswith("all 200 vectors are missing") == (lost in (None, range(200)))


def test_a_directory_that_is_deleted_meanwhile_takes_nothing(path):
    """What is acknowledged would be lost with the file that no name leads to any more."""
    with opened(path) as memory:
        turn = memory.retrieve("Passage 3").turn
        shutil.rmtree(path)
        for write in (
            lambda: memory.add_documents([Document("One more.")]),
            lambda: memory.sync([Document("One more.")]),
            lambda: memory.record(turn, 1.0),
            lambda: memory.teach("One more."),
        ):
            with pytest.raises(StoreUnavailableError, match="cannot be found any more"):
                write()


def test_an_interrupted_filling_goes_on(path, monkeypatch):
    """The next open does the rest."""
    with opened(path) as memory:
        kind = type(memory.index)
    shutil.rmtree(path / "vectors")
    upsert, left = kind.upsert, iter(range(2))

    def fail_later(*given):
        if next(left, None) is None:
            raise StoreUnavailableError
        upsert(*given)

    with monkeypatch.context() as patched:
        set_bounds(patched, filled=64)
        patched.setattr(kind, "upsert", fail_later)
        with pytest.raises(StoreUnavailableError):
            opened(path)
    with opened(path) as memory:
        assert memory.index.count() == 200


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


def test_vectors_without_documents_do_not_empty_the_answers(path, caplog):
    """The database is older than the vectors: of 600 only 20 have a document.

    Search goes on until it has found what stands; reindex deletes the rest.
    """
    with opened(path) as memory:
        memory.forget([f"d{n}" for n in range(20, 200)])
    shutil.copy(path / "graph.sqlite", path / "backup")
    with opened(path) as memory:
        memory.add_documents(pages(20, 600), split=False, progress=None)
        memory.teach("Bees keep Ann.", namespace="ann")
        memory.maintenance.reindex()
    shutil.move(path / "backup", path / "graph.sqlite")
    with opened(path) as memory:
        assert warnings(caplog)[-1].startswith("580 vectors in")
        for n in range(0, 600, 60):
            assert len(memory.retrieve(f"Passage {n}", k=4).documents) == 4
            assert len(memory.graph.search(f"Passage {n}", k=4)) == 4
        assert memory.maintenance.reindex() == 20
        assert memory.index.open_sibling("notes-1").count() == 0
        assert len(memory.retrieve("Passage 7", k=4).documents) == 4


def change(path, text, count=40):
    """Edit, delete and add documents, in one opening."""
    with opened(path) as memory:
        memory.add_documents([Document(f"{text} {n}", id=f"d{n}") for n in range(count)])
        memory.forget([f"d{n}" for n in range(190, 200)])
        memory.add_documents([Document(f"{text} more {n}", id=f"n{n}") for n in range(10)])


def find_problems(path, **given):
    """What the doctor finds in the vectors, in words."""
    found = examine(path, embeddings=PLAIN, **given).findings
    return [one.message for one in found if one.check == "vectors" and one.severity != "info"]


def count_own(memory):
    """How many chunks are the first that their own vector finds."""
    catalog, ids = memory.store.catalog, memory.store.catalog.chunk_ids()
    vectors = catalog.vectors(ids).items()
    return sum(
        memory.index.search(vector.astype(np.float32), 1) == [one] for one, vector in vectors
    )


def test_a_graph_and_vectors_of_two_moments(path, caplog):
    """The older graph, then the newer again: found, and mended by the next opening."""
    shutil.copy(path / "graph.sqlite", path / "older")
    change(path, "Entirely other bananas")
    shutil.copy(path / "graph.sqlite", path / "newer")
    assert find_problems(path) == []
    for moment, lost in (("older", 10), ("newer", 0)):
        shutil.copy(path / moment, path / "graph.sqlite")
        problems = find_problems(path)
        assert any(one.startswith("40 vectors are those of other texts") for one in problems)
        missing = any(one.startswith("10 chunks are missing in the vector") for one in problems)
        assert missing == bool(lost)
        caplog.clear()
        with opened(path) as memory:
            assert warnings(caplog)[0].startswith(f"{40 + lost} vectors in")
            assert "restored from a backup?" in warnings(caplog)[0]
            assert count_own(memory) == 200
        assert [one for one in find_problems(path) if "belong to no chunk" not in one] == []
    with opened(path) as memory:
        memory.maintenance.reindex()
    assert find_problems(path) == []
    caplog.clear()
    opened(path).close()
    assert warnings(caplog) == []


def test_a_graph_older_than_the_vectors_on_a_server(path, caplog):
    """They may be those of another memory: it warns until that is asked for."""
    client = chromadb.EphemeralClient()
    with opened(path, vectors=client, reindex=True):
        pass
    shutil.copy(path / "graph.sqlite", path / "older")
    with opened(path, vectors=client) as memory:
        memory.add_documents([Document(f"Bananas {n}", id=f"d{n}") for n in range(200)])
    shutil.copy(path / "older", path / "graph.sqlite")
    for _ in range(2):
        caplog.clear()
        with opened(path, vectors=client) as memory:
            assert "`crabpath reindex` indexes them again" in warnings(caplog)[0]
            assert count_own(memory) == 0
        assert find_problems(path, vectors=client)[0].startswith("200 vectors are those of other")
    with opened(path, vectors=client, reindex=True) as memory:
        assert count_own(memory) == 200
    assert find_problems(path, vectors=client) == []
    caplog.clear()
    opened(path, vectors=client).close()
    assert warnings(caplog) == []
    client.delete_collection("crabpath")
    client.close()


def test_vectors_of_episodes_that_are_gone(path):
    """As a backend leaves them that ends between two deletions: doctor names them."""
    for mend in (
        lambda memory: memory.maintenance.run(),
        lambda memory: memory.maintenance.reindex(),
    ):
        with opened(path) as memory:
            turn = memory.retrieve("Passage 3", namespace="ann").turn
            memory.record(Feedback(turn.id, 1.0, used=["d3"], namespace="ann"))
            memory.maintenance.reindex()
            key = memory.store.walk.get_clock("ann").key
            beside = memory.index.open_sibling(f"episodes-{key}")
            beside.upsert(["gone"], [np.eye(1, 16, dtype=np.float32)[0]], [""], [{}])
            assert find_problems(path) == ["1 vectors of episodes belong to no stored item"]
            mend(memory)
            assert beside.count() == 1
        assert find_problems(path) == []


@pytest.mark.slow
def test_backends_that_end_leave_no_vector_that_maintenance_does_not_find(postgres_url, tmp_path):
    """Feedback and undo while connections of PostgreSQL are terminated, vectors on a server."""
    server = ChromaServer(tmp_path)
    place = {"vectors": f"http://127.0.0.1:{server.port}"}
    admin = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_class c ON c.oid = relation WHERE "
        "relname = 'crabpath_namespaces' AND relnamespace = current_schema::regnamespace "
        "AND pid <> pg_backend_pid()"
    )
    refused = list[str]()

    def learn(memory, number):
        try:
            turn = memory.retrieve(f"Passage {number}", namespace="ann").turn
            given = Feedback(turn.id, 1.0, used=["d3"], namespace="ann")
            memory.undo(memory.record(given).feedback_id)
        except CrabPathError as error:
            refused.append(str(error))

    with opened(postgres_url, **place) as memory:
        memory.add_documents(pages(0, 5), progress=None)
        with ThreadPoolExecutor(4) as pool, admin.connect() as connection:
            calls = [pool.submit(learn, memory, number) for number in range(80)]
            while not all(call.done() for call in calls):
                connection.exec_driver_sql(others)
                wait(calls, timeout=0.05)
            assert [call.result() for call in calls] == [None] * 80
        memory.learning.learn_waiting()
        memory.maintenance.run()
        assert find_problems(postgres_url, **place) == []
    assert refused
    admin.dispose()
    server.disconnect()
    server.stop()


def test_what_belongs_to_others_stays(tmp_path, monkeypatch):
    """Nothing is deleted from a store of somebody else; a usual question asks it once."""
    store = InMemoryVectorStore(PLAIN)
    with opened(tmp_path / "m", vectors=store) as memory:
        memory.add_documents(pages(0, 3), progress=None)
        store.add_documents([Document("Somebody else's", id="theirs")])
        memory.maintenance.reindex()
        assert [one.id for one in store.get_by_ids(["theirs"])] == ["theirs"]
        asked, search = [], memory.index.search
        monkeypatch.setattr(memory.index, "search", lambda *g: asked.append(g) or search(*g))
        memory.retrieve("Passage 2", k=2)
        assert len(asked) == 1


def test_a_directory_that_another_process_has(path):
    """It is refused after the time limit, with the way out; info needs the graph store alone."""
    with opened(path) as memory:
        turn = memory.retrieve("Passage 2").turn.id
    with FileLock(path / "vectors" / "crabpath.lock", is_singleton=False):
        with pytest.raises(StoreLockedError, match=r"in use by another process.*HttpClient"):
            opened(path, settings=Settings(time_limit=0.2))
        info, explanation = (
            json.loads(CliRunner().invoke(app, [*command, "--json", "-s", str(path)]).stdout)
            for command in (["info"], ["explain", turn])
        )
    assert (info["nodes"], info["vectors"]) == (200, f"Chroma in {path.resolve() / 'vectors'}")
    assert explanation["turn"]["id"] == turn


class Cutting(DeterministicFakeEmbedding):
    """Takes the database away before it embeds a batch that holds passage 30."""

    proxy: object = None

    def embed_documents(self, texts):
        if self.proxy is not None and "Passage 30" in texts:
            self.proxy.cut()
        return super().embed_documents(texts)


async def test_a_database_that_goes_and_comes_back(postgres_url, tmp_path):
    """What was acknowledged is kept; the same call later adds the rest; questions fail clearly."""
    with pytest.raises(ConfigurationError, match="needs vectors=: a directory, the URL of"):
        opened(postgres_url)
    away = pytest.raises(StoreUnavailableError, match="is the database running")
    url = sa.make_url(postgres_url)
    proxy = Proxy((url.host or "127.0.0.1", url.port or 5432))
    far = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    settings = Settings(ingest=IngestSettings(batch_size=16))
    embeddings = Cutting(size=16, proxy=proxy)
    given = {"vectors": tmp_path / "v", "settings": settings, "embeddings": embeddings}
    proxy.cut()
    with away:
        CrabPath.open(far, **given)
    proxy.mend()
    with CrabPath.open(far, **given) as memory:
        with away:
            memory.add_documents(pages(0, 40))
        with away:
            memory.retrieve("passage")
        with away:
            await memory.aio.retrieve("passage")
        proxy.mend()
        # Batches of 16 hold d0…d15 and d16…d31; the second was cut.
        assert memory.info()["nodes"] == memory.index.count() == 16
        embeddings.proxy = None
        assert memory.add_documents(pages(0, 40)).added == 24
        assert memory.info()["nodes"] == memory.index.count() == 40
        assert not memory.store.catalog.has_unfinished_ingest()
        assert len(memory.retrieve("passage", k=40).documents) == 40
        assert memory.info()["turns"] == 1
    proxy.cut()


@pytest.mark.parametrize(
    ("path", "given", "error", "sentence"),
    [
        ("", {}, ConfigurationError, "the path is empty: pass a directory"),
        ("notes.txt", {}, StoreReadOnlyError, "is not a directory: choose another path"),
        ("m", {"vectors": 5}, ConfigurationError, "vectors cannot be a int: pass a directory"),
        ("mysql://localhost/x", {"vectors": "v"}, ConfigurationError, "mysql is not supported"),
        (None, {"vectors": 5}, ConfigurationError, "vectors cannot be"),
    ],
)
def test_what_cannot_be_opened(tmp_path, monkeypatch, path, given, error, sentence):
    """It is refused with what to do; files keep their contents, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(error, match=sentence):
        CrabPath.open(path, **given)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not list(tmp_path.glob("crabpath-*"))
    opened(tmp_path / "m").close()
