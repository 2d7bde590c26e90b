"""Readiness: an answer within a second, whatever the servers do."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from proxy import Proxy
from typer.testing import CliRunner

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath, StoreError, StoreReadOnlyError, StoreUnavailableError
from crabpath_retrievers.cli import app

# A connection that was given up while the network was silent is closed by garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PLAIN = DeterministicFakeEmbedding(size=16)


class SlowStore(InMemoryVectorStore):
    """A store of an application that has no time limit of its own."""

    seconds = 0.0

    def get_by_ids(self, ids):
        time.sleep(self.seconds)
        return super().get_by_ids(ids)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[ChromaServer]:
    started = ChromaServer(tmp_path_factory.mktemp("chroma"))
    yield started
    started.disconnect()
    started.stop()


@pytest.fixture
def far_database(postgres_url) -> Iterator[tuple[str, Proxy]]:
    url = sa.make_url(postgres_url)
    proxy = Proxy((url.host, url.port or 5432))
    yield url.set(port=proxy.port).render_as_string(hide_password=False), proxy
    proxy.silent.clear()
    proxy.cut()


@pytest.fixture
def far_vectors(server) -> Iterator[tuple[str, Proxy]]:
    proxy = Proxy(("127.0.0.1", server.port))
    yield f"http://127.0.0.1:{proxy.port}/t{uuid.uuid4().hex}", proxy
    proxy.silent.clear()
    proxy.cut()


def run(*given: object) -> tuple[int, dict]:
    """Exit code and JSON of ``crabpath ready``; its own start is not counted."""
    with within(1.5):
        result = CliRunner().invoke(app, ["ready", *map(str, given), "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.slow
async def test_servers_that_fall_silent_and_come_back(far_database, far_vectors):
    """Each is named within a second, by the open memory and by the command."""
    (path, database), (vectors, chroma) = far_database, far_vectors
    good = "the database and the vector store answer"
    with CrabPath.open(path, vectors=vectors, embeddings=PLAIN) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        assert memory.ready().to_dict() == {"ready": True, "reason": good}
        # A second is all that servers have to answer, also where other processes keep them waiting.
        until = time.monotonic() + 120.0
        while (asked := run(path, "--vectors", vectors)) != (0, {"ready": True, "reason": good}):
            assert time.monotonic() < until, asked
        for proxy, sentence in ((chroma, "vector store"), (database, "database")):
            proxy.silent.set()
            with within(1.5):
                state = await memory.aio.ready()
            assert not state.ready
            asked = run(path, "--vectors", vectors)
            assert (asked[0], asked[1]["ready"]) == (1, False)
            for reason in (state.reason, asked[1]["reason"]):
                assert "answer" in reason or "reached" in reason
                assert "Chroma" in reason or sentence in reason or "store" in reason
                assert "\n" not in reason
            proxy.silent.clear()
        assert memory.ready().ready
        chroma.cut()
        assert not memory.ready().ready
        chroma.mend()
        database.cut()
        assert "is the database running" in memory.ready().reason
        database.mend()
        assert memory.ready().ready
    assert memory.ready().reason.startswith("this memory was closed")


def test_a_store_of_an_application_that_does_not_answer(tmp_path, monkeypatch):
    """It has no time limit that could be set: the wait is given up."""
    with CrabPath.open(tmp_path, vectors=SlowStore(PLAIN), embeddings=PLAIN) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        assert memory.ready().ready
        monkeypatch.setattr(SlowStore, "seconds", 3.0)
        with within(1.5):
            state = memory.ready()
    assert state.reason == "the vector store gave no answer within 1 s"


def test_a_directory(tmp_path):
    """It is asked while a process has it open, and nothing is made where there is none."""
    place = tmp_path / "memory"
    with CrabPath.open(place, embeddings=PLAIN) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        assert memory.ready().ready
        assert run(place)[0] == 0
    catalogue = place / "vectors" / "chroma.sqlite3"
    catalogue.write_bytes(b"no database")
    code, state = run(place)
    assert (code, state["ready"]) == (1, False)
    assert "chroma.sqlite3" in state["reason"] or "vectors" in state["reason"]
    code, state = run(tmp_path / "nothing")
    assert code == 1
    assert state["reason"].startswith("there is no memory at ")
    assert not (tmp_path / "nothing").exists()


def test_imports_do_not_count(tmp_path, monkeypatch):
    """The command has its second for the answers of the servers, not for its own start."""
    with CrabPath.open(tmp_path / "memory", embeddings=PLAIN):
        pass
    package = tmp_path / "slow" / "chromadb"
    package.mkdir(parents=True)
    no_server = "def HttpClient(*_, **__): raise ValueError('nobody is there')"
    (package / "__init__.py").write_text(f"import time\ntime.sleep(1.1)\n{no_server}")
    (package / "config.py").write_text("Settings = dict")
    for name in [name for name in sys.modules if name.partition(".")[0] == "chromadb"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path / "slow")
    given = ["ready", str(tmp_path / "memory"), "--vectors", "http://127.0.0.1:1/vectors", "--json"]
    assert "nobody is there" in CliRunner().invoke(app, given).stdout


@pytest.fixture
def set_read_only(postgres_url) -> Iterator[tuple[str, Callable[[str], None]]]:
    """A database as a role sees it, and what makes it read-only for that role, or not."""
    url, role = sa.make_url(postgres_url), f"r{uuid.uuid4().hex}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")

    def set_to(value: str) -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql(
                f"ALTER ROLE {role} SET default_transaction_read_only = {value}"
            )
            ended = (
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
            )
            connection.exec_driver_sql(ended)

    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} SUPERUSER LOGIN")
        yield url.set(username=role).render_as_string(hide_password=False), set_to
        set_to("off")
        connection.exec_driver_sql(f"REASSIGN OWNED BY {role} TO CURRENT_USER")
        connection.exec_driver_sql(f"DROP OWNED BY {role}")
        connection.exec_driver_sql(f"DROP ROLE {role}")
    engine.dispose()


def test_a_database_that_takes_no_writes(set_read_only):
    """As after a fail-over: it is not ready, and turns wait until they can be written."""
    url, set_to = set_read_only
    with CrabPath.open(url, vectors=InMemoryVectorStore(PLAIN), embeddings=PLAIN) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        set_to("on")
        answer = call_again(lambda: memory.retrieve("What colour has the sky?"))
        for state in (memory.ready().to_dict(), run(url)[1]):
            assert not state["ready"]
            assert "read-only" in state["reason"]
        with pytest.raises(StoreReadOnlyError, match="read-only"):
            call_again(lambda: memory.record(answer, "up"))
        set_to("off")
        assert call_again(lambda: memory.record(answer, "up")).status == "applied"
        assert memory.ready().ready


def call_again(work: Callable[[], Any]) -> Any:
    """Call until no connection that was ended meanwhile is used any more."""
    for _ in range(10):
        with suppress(StoreUnavailableError):
            return work()
    return work()


def test_a_database_without_a_memory_and_one_whose_vectors_are_not_named(postgres_url, tmp_path):
    code, state = run(postgres_url)
    assert (code, state["reason"][:22]) == (1, "there is no memory at ")
    with CrabPath.open(postgres_url, vectors=tmp_path, embeddings=PLAIN):
        pass
    code, state = run(postgres_url)
    assert (code, state["ready"]) == (0, True)
    assert state["reason"].endswith("vectors elsewhere were not asked: give --vectors")


def test_files_that_vanish_while_they_are_open(tmp_path):
    """SQLite and Chroma go on with files that nobody will find again; a probe must see it."""
    place = tmp_path / "memory"

    def open_filled():
        memory = CrabPath.open(place, embeddings=PLAIN)
        memory.add_documents([Document("The sky is blue.", id="a")], progress=None)
        assert memory.ready().ready
        return memory

    with open_filled() as memory:
        (place / "graph.sqlite").rename(tmp_path / "kept")
        assert "cannot be found" in memory.ready().reason
        shutil.copy(tmp_path / "kept", place / "graph.sqlite")
        found = memory.ready()
        assert (found.ready, "was replaced" in found.reason) == (False, True)
    shutil.rmtree(place)
    with open_filled() as memory:
        shutil.move(place / "vectors", tmp_path / "vectors")
        found = memory.ready()
        assert (found.ready, "vectors" in found.reason) == (False, True)
        shutil.move(tmp_path / "vectors", place / "vectors")
        assert memory.ready().ready
        shutil.rmtree(place)
        assert not memory.ready().ready


AS_NOBODY = """
import os, sys
from pathlib import Path
import sqlalchemy.dialects.sqlite, chromadb
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath, CrabPathError, Feedback
import crabpath_retrievers.vectors.chroma
base, plain = Path(sys.argv[1]), DeterministicFakeEmbedding(size=8)
def fill(place):
    memory = CrabPath.open(place, embeddings=plain)
    memory.add_documents([Document("The sky is blue.", id="a")], progress=None)
    memory.retrieve("sky")
    return memory
fill(base / "warm").close()  # imports what this user may not read
if os.geteuid() == 0:
    os.setuid(65534)
os.chdir("/")
for number, (folders, files) in enumerate([(0o700, 0o400), (0o500, 0o600), (0, 0o600)]):
    place = base / str(number)
    memory = fill(place)
    known = [root for root, *_ in os.walk(place)]
    def allow(folders, files):
        for root in known:
            os.chmod(root, 0o700)
        for root, _, names in [*os.walk(place, topdown=False)]:
            for name in names:
                os.chmod(os.path.join(root, name), files)
            os.chmod(root, folders)
    allow(folders, files)
    for work in (
        lambda: memory.add_documents([Document("More", id="b")], progress=None),
        lambda: memory.record(Feedback(memory.retrieve("sky").turn.id, 1.0)),
        lambda: memory.forget(ids=["a"]),
        lambda: memory.maintenance.run(),
        lambda: memory.transfer.export(place / "archive"),
        lambda: print(f"ready={memory.ready().ready}"),
        lambda: memory.close(),
        lambda: CrabPath.open(place, embeddings=plain, create=False),
    ):
        try:
            work()
        except CrabPathError as error:
            print(type(error).__name__)
    allow(0o700, 0o600)
    with CrabPath.open(place, embeddings=plain) as memory:
        assert memory.retrieve("sky", k=1).documents[0].node.id == "a"
"""


@pytest.mark.slow
def test_rights_that_are_taken_away_while_open_are_named():
    """Those of files or directories: nothing raw comes out, nothing is lost, a probe sees it."""
    with tempfile.TemporaryDirectory() as folder:  # others may look into no directory of pytest
        Path(folder).chmod(0o777)
        command = [sys.executable, "-c", AS_NOBODY, folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said.count("StoreReadOnlyError") >= 9
    assert said.count("ready=False") == 3
    named = {"StoreReadOnlyError", "StoreError", "InvalidInputError", "ready=False"}
    assert set(said) <= named


def test_a_damaged_database_is_called_damaged(tmp_path):
    """And not a server that does not run."""
    with CrabPath.open(tmp_path, embeddings=PLAIN) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")], progress=None)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(tmp_path / "graph.sqlite")))
    with engine.begin() as connection:
        wrong = "UPDATE crabpath_meta SET value = CAST(x'ff' AS TEXT) WHERE name = 'embedder'"
        connection.execute(sa.text(wrong))
    engine.dispose()
    with pytest.raises(StoreError, match=r"is damaged .* run crabpath doctor"):
        CrabPath.open(tmp_path, embeddings=PLAIN)
