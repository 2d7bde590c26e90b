"""A database that is away, silent or full says so, loses nothing, and is taken up again."""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
import tables
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from proxy import Proxy

from crabpath_retrievers import CrabPath, Feedback, Settings, StoreFullError
from crabpath_retrievers.core.calls import limit_waiting
from crabpath_retrievers.errors import StoreUnavailableError
from crabpath_retrievers.storage import GraphStore
from tests.seams import get_engine, make_change, wrap_function

# A connection that was given up while the network was silent is closed by garbage collection.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is inside takes no longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


@pytest.fixture
def far(postgres_url) -> Iterator[tuple[str, Proxy]]:
    """URL of a database whose network can fall silent."""
    url = sa.make_url(postgres_url)
    proxy = Proxy((url.host, url.port or 5432))
    yield url.set(port=proxy.port).render_as_string(hide_password=False), proxy
    proxy.silent.clear()
    proxy.cut()
    gc.collect()


def sleep(store: GraphStore, seconds: float, *, hot: bool = True, times: int = 1) -> None:
    """Let the database sleep, through the driver's own cursor or through SQLAlchemy."""

    @contextmanager
    def open_cursor(plain, connection):
        with plain(connection) as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [seconds])
            yield cursor

    with store.open_reader() as read, pytest.MonkeyPatch.context() as patch:
        wrap_function(patch, "open_cursor", open_cursor)
        for _ in range(times):
            if hot:
                read.walk.get_clock("anybody")
            else:
                with read.connect() as connection:
                    connection.execute(sa.select(sa.func.pg_sleep(seconds)))


def test_a_store_works_again_after_its_database_was_away(far):
    """Reads and writes fail with a clear error while it is gone, and then go on as before."""
    url, proxy = far
    store = GraphStore(url)
    store.apply([make_change("put_meta", {"a": "before"})])
    proxy.cut()
    with pytest.raises(StoreUnavailableError, match="is the database running"):
        store.catalog.meta()
    with pytest.raises(StoreUnavailableError):
        store.apply([make_change("put_meta", {"a": "lost"})])
    with pytest.raises(StoreUnavailableError), store.hold_ingest_lock():
        pass
    proxy.mend()
    assert store.catalog.meta()["a"] == "before"
    store.apply([make_change("put_meta", {"a": "after"})])
    assert store.catalog.meta()["a"] == "after"
    store.close()


def test_a_connection_lost_inside_a_write_takes_the_write_back(postgres_url):
    """When the server ends the session in the middle of an apply, nothing of it is kept."""
    store = GraphStore(postgres_url)
    admin = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")

    @sa.event.listens_for(get_engine(store), "after_cursor_execute")
    def _end(connection, cursor, statement, *_rest) -> None:
        if f"INSERT INTO {tables.meta}" in statement:
            session = connection.connection.driver_connection.info.backend_pid
            with admin.connect() as other:
                other.execute(sa.text("SELECT pg_terminate_backend(:p)"), {"p": session})

    with pytest.raises(StoreUnavailableError):
        store.apply([make_change("put_meta", {"first": "1", "second": "2"})])
    sa.event.remove(get_engine(store), "after_cursor_execute", _end)
    assert "first" not in store.catalog.meta()
    store.apply([make_change("put_meta", {"first": "1"})])
    assert store.catalog.meta()["first"] == "1"
    store.close()
    admin.dispose()


@pytest.mark.slow
def test_the_first_call_after_idle_connections_ended_works(far):
    """Also right after they were used, as when the server is restarted quickly."""
    url, proxy = far
    embeddings = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": embeddings, "vectors": InMemoryVectorStore(embeddings)}
    with CrabPath.open(url, **given) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        answer = memory.retrieve("sky")
        for call in (
            lambda: memory.retrieve("sky").documents,
            lambda: memory.record(answer, "up"),
            lambda: memory.undo(turn_id=answer.turn.id),
            memory.turns,
            lambda: memory.ready().ready,
            lambda: memory.forget(["a"]).documents,
        ):
            memory.store.flush()
            assert memory.store.catalog.meta()
            proxy.cut()
            proxy.mend()
            assert call()


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements", [{"seconds": 5.0}, {"seconds": 5.0, "hot": False}, {"seconds": 0.25, "times": 3}]
)
def test_statements_that_are_not_answered_in_time_fail(postgres_url, statements):
    """On the driver's own cursor as well, and several together; the next one works."""
    store = GraphStore(postgres_url)
    late = pytest.raises(StoreUnavailableError, match="no answer within")
    with within(2.0), limit_waiting(0.6), late:
        sleep(store, **statements)
    with limit_waiting(5.0):
        assert "schema_version" in store.catalog.meta()
    store.close()


@pytest.mark.slow
def test_a_lock_that_is_held_elsewhere_is_waited_for_within_the_limit(postgres_url):
    """A write behind somebody's transaction fails in time and is taken back."""
    store, other = GraphStore(postgres_url), sa.create_engine(postgres_url)
    store.apply([make_change("put_meta", {"a": "before"})])
    with other.begin() as held:
        held.exec_driver_sql(f"UPDATE {tables.meta} SET value = value")
        with within(2.0), limit_waiting(0.5), pytest.raises(StoreUnavailableError):
            store.apply([make_change("put_meta", {"a": "lost"})])
    assert store.catalog.meta()["a"] == "before"
    store.close()
    other.dispose()


@pytest.mark.slow
def test_work_without_a_limit_is_not_cut(postgres_url):
    """Ingest and maintenance may wait longer than a call: nothing limits them."""
    store = GraphStore(postgres_url, time_limit=0.1)
    sleep(store, 0.5)
    store.close()


@pytest.mark.slow
def test_calls_of_a_memory_fail_in_time_and_work_again(far, caplog):
    """A query, feedback, and closing, which gives a turn record up; in between all is as before."""
    url, proxy = far
    embeddings = DeterministicFakeEmbedding(size=16)
    vectors = InMemoryVectorStore(embeddings)
    settings = Settings(time_limit=0.5)
    memory = CrabPath.open(url, embeddings=embeddings, vectors=vectors, settings=settings)
    memory.add_documents([Document("The sky is blue.", id="a")])
    turn = memory.retrieve("sky").turn
    assert memory.explain(turn.id)
    proxy.silent.set()
    # The driver takes 2 seconds at least to give up a new connection.
    for call in (
        lambda: asyncio.run(memory.aio.retrieve("sky")),
        lambda: memory.record(Feedback(turn.id, 1.0, feedback_id="one")),
    ):
        with within(3.5), pytest.raises(StoreUnavailableError):
            call()
    proxy.silent.clear()
    assert memory.retrieve("sky").documents
    assert memory.record(Feedback(turn.id, 1.0, feedback_id="one")).status == "applied"
    memory.store.flush()
    proxy.silent.set()
    memory.store.record(turn)
    with within(3.5):  # its background thread may be connecting
        memory.close()
    assert "turn records are lost" in caplog.text
    proxy.silent.clear()
    time.sleep(0.1)


@pytest.mark.slow
def test_a_server_that_is_silent_from_the_start_is_unavailable(far):
    """Opening says so within the limit."""
    url, proxy = far
    proxy.silent.set()
    with within(3.5), pytest.raises(StoreUnavailableError, match="cannot be reached"):
        GraphStore(url, time_limit=0.5)


class Disk:
    """A disk that SQLite finds full while it is told so: the database may not grow by a page."""

    def __init__(self, store: GraphStore) -> None:
        """Of this store."""
        self.full = False
        sa.event.listen(get_engine(store), "begin", self._limit)

    def _limit(self, connection: sa.Connection) -> None:
        pages = 1 if self.full else 2**30  # never fewer than there are
        connection.connection.dbapi_connection.execute(f"PRAGMA max_page_count={pages}")


@pytest.mark.slow
def test_what_is_acknowledged_is_kept_and_goes_on_once_there_is_room(tmp_path):
    """Answers still come; feedback is refused with what to do; turns wait and are written later."""
    embeddings = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": embeddings, "vectors": InMemoryVectorStore(embeddings)}
    with CrabPath.open(tmp_path, **given) as memory:
        memory.add_documents([Document(f"The sky is blue {n}.", id=f"d{n}") for n in range(20)])
        kept = memory.record(Feedback(memory.retrieve("sky").turn.id, 1.0, feedback_id="one"))
        disk = Disk(memory.store)
        disk.full = True
        turns = [memory.retrieve("sky", k=20).turn.id for _ in range(5)]
        with pytest.raises(StoreFullError, match=r"the disk of .* is full: make room"):
            memory.record(Feedback(turns[0], 1.0, correction="word " * 3000))
        with pytest.raises(StoreFullError, match="is full"):
            memory.add_documents([Document("word " * 3000, id="long")])
        disk.full = False
        assert [memory.explain(turn).turn.id for turn in turns] == turns
        assert memory.record(Feedback(turns[0], 1.0)).status == "applied"
    with CrabPath.open(tmp_path, **given) as memory:
        assert memory.store.learned.get_feedback("one").status == kept.status == "applied"


FILES_RUN_OUT = """
import os, subprocess, sys
from pathlib import Path
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath, CrabPathError, Feedback
disk, plain = Path(sys.argv[1]), DeterministicFakeEmbedding(size=8)
def allow(more):
    state = os.statvfs(disk)
    most = state.f_files - state.f_ffree + more
    subprocess.run(["mount", "-o", f"remount,nr_inodes={most}", disk], check=True)
def use(name):
    with CrabPath.open(disk / name, embeddings=plain) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")], progress=None)
        memory.record(Feedback(memory.retrieve("sky").turn.id, 1.0))
use("memory")
for more in range(9):
    allow(more)
    for name in ("memory", f"new-{more}"):
        try:
            use(name)
        except CrabPathError as error:
            print(type(error).__name__, "make room" in str(error))
allow(1000)
for place in disk.iterdir():
    use(place.name)
"""


@pytest.mark.slow
def test_a_disk_that_takes_no_more_files_is_called_full(tmp_path):
    """It has room for bytes; whichever file cannot be made, nobody is sent to look at rights."""
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mounted = [*alone, "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs "$0" && exec "$@"', tmp_path]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], check=False).returncode:
        pytest.skip("mounting a small disk needs root, or user namespaces")
    command = [*mounted, sys.executable, "-c", FILES_RUN_OUT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) > 6
    assert set(said) == {"StoreFullError True"}


@pytest.mark.slow
def test_a_full_disk_of_postgresql_is_named(postgres_url):
    """Its own code for it, raised by a function as the server would."""
    store = GraphStore(postgres_url)
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    full_disk = pytest.raises(StoreFullError, match="make room")
    with full_disk, store.connect() as connection:
        connection.exec_driver_sql(full)
    store.close()
