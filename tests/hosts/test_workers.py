"""Memories and processes that fork: what the page about workers says, run as it says."""

import asyncio
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from served import running

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath, CrabPathRetriever, ForkedError, InvalidInputError, examine
from crabpath_server import create_app
from crabpath_server.client import CrabPathRetriever as ServedRetriever

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/workers.md").read_text(encoding="utf-8")
PLAIN = DeterministicFakeEmbedding(size=16)
TEXTS = ["Tests run on Hydra.", "Lunch is at noon."]
SENTENCE = "open it in each worker"
_CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
LONGEST = 60.0  # seconds, after which a process is said to hang

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
pytestmark = [
    needs_fork,
    # Python 3.12 warns of every fork beside threads, which is what these tests are about.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def run_in_fork(work):
    """What ``work`` returns or raises in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            _wait(child)
            said = pipe.read()
    finally:
        _kill(child)
    return pickle.loads(said)  # noqa: S301  from our own child


def _be_child(work, writing):
    try:
        try:
            said = work()
        except BaseException as error:
            said = (type(error).__name__, str(error))
        os.write(writing, pickle.dumps(said))
    finally:
        os._exit(0)


def _wait(child):
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    pytest.fail("the forked process hangs")


def _kill(child):
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


@pytest.fixture
def retriever(tmp_path):
    made = CrabPathRetriever.from_texts(TEXTS, PLAIN, path=tmp_path / "memory", k=2)
    made.invoke("Where do the tests run?")
    yield made
    made.memory.close()


CALLS = {
    "invoke": lambda r: r.invoke("lunch?"),
    "ainvoke": lambda r: asyncio.run(r.ainvoke("lunch?")),
    "record": lambda r: r.record(None, 1.0),
    "add_documents": lambda r: r.memory.add_documents([Document("More.")]),
    "its asynchronous form": lambda r: asyncio.run(r.memory.aio.add_documents([Document("x")])),
    "forget": lambda r: r.memory.forget(["x"]),
    "maintenance": lambda r: r.memory.maintenance.run(),
    "info": lambda r: r.memory.info(),
    "the graph store": lambda r: r.memory.store.catalog.meta(),
    "the index": lambda r: r.memory.index.count(),
    "opening it again": lambda r: CrabPathRetriever.from_existing(
        Path(r.memory.store.location), PLAIN
    ),
    "opening another": lambda _: CrabPath.open(embeddings=PLAIN),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_forked_process_is_told_to_open_its_own(retriever, call):
    kind, sentence = run_in_fork(lambda: call(retriever))
    assert (kind, SENTENCE in sentence) == ("ForkedError", True), sentence
    assert len(retriever.invoke("lunch?")) == 2


def test_a_forked_process_closes_nothing_of_its_parent(retriever):
    """Not by closing, nor by the end of the process; a temporary memory is not deleted."""
    with CrabPath.open(embeddings=PLAIN) as temporary:
        place = Path(temporary.store.location)

        def close():
            found = retriever.memory.ready()
            for memory in (retriever.memory, temporary):
                memory.close()
                memory.store.flush()
                memory.store.close()
                memory.index.close()
            return found.ready, found.reason, repr(temporary)

        ready, reason, shown = run_in_fork(close)
        assert (ready, SENTENCE in reason) == (False, True)
        assert "closed" in shown
        assert place.is_dir()
        temporary.add_documents([Document("It is there.")])
        said = [one.message for one in examine(place, embeddings=PLAIN).findings]
        assert any("a process uses" in one for one in said), said
    retriever.memory.add_documents([Document("Dinner is at six.")])
    assert retriever.memory.index.count() == 3


def test_a_forked_process_ends_as_it_likes_and_the_parent_goes_on():
    """Also where it frees all that it has: Chroma's engine would wait there for its threads."""
    ending = (
        "import gc, logging, os, sys\n"
        "logging.disable()\n"
        "from crabpath_retrievers import CrabPath\n"
        "from langchain_core.documents import Document\n"
        "from langchain_core.embeddings import DeterministicFakeEmbedding\n"
        "memory = CrabPath.open(embeddings=DeterministicFakeEmbedding(size=16))\n"
        "memory.add_documents([Document('Lunch is at noon.')])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    del memory\n"
        "    gc.collect()\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "print(len(memory.retrieve('lunch?').documents), os.path.isdir(memory.store.location))\n"
    )
    assert run_python(None, None, "-W", "ignore", "-c", ending).split() == ["7", "1", "True"]


@pytest.mark.slow
def test_a_fork_amid_the_work_of_other_threads_never_hangs(retriever):
    """Whatever lock one of them holds at that moment."""
    ended, failures = threading.Event(), []

    def work(number):
        while not ended.is_set():
            try:
                if number:
                    retriever.record(retriever.invoke("lunch?"), 1.0)
                else:
                    retriever.memory.add_documents([Document(f"{time.time()}")], progress=None)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    calls = list(CALLS.values())
    try:
        for number in range(40):
            call = calls[number % len(calls)]
            assert run_in_fork(lambda call=call: call(retriever))[0] == "ForkedError"
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert retriever.memory.ready().ready


def test_a_memory_on_servers_is_opened_anew_beside_that_of_the_parent(pgvector_url):
    """The child's own connections; those of the parent are not used."""
    opening = {"embeddings": PLAIN, "vectors": "pgvector"}
    with CrabPath.open(pgvector_url, **opening) as memory:
        memory.add_documents([Document(text) for text in TEXTS])

        def list_connections(one):
            with one.store.connect() as connection:
                return set(connection.exec_driver_sql(_CONNECTIONS).scalars())

        def ask():
            with pytest.raises(ForkedError):
                memory.retrieve("lunch?")
            with CrabPath.open(pgvector_url, **opening) as own, own.store.connect() as reader:
                me = reader.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
                return len(own.retrieve("lunch?", k=2).documents), me

        ours = list_connections(memory)
        found, theirs = run_in_fork(ask)
        assert (found, theirs in ours) == (2, False)
        assert ours <= list_connections(memory)
        assert len(memory.retrieve("lunch?", k=2).documents) == 2


def test_a_client_of_a_server_connects_anew(retriever):
    with running(create_app(retriever.memory)) as url:
        served = ServedRetriever.connect(url, k=2)
        own = ServedRetriever(memory=type(served.memory)(url, transport=httpx.HTTPTransport()))
        assert run_in_fork(lambda: len(served.invoke("lunch?"))) == 2
        assert run_in_fork(lambda: own.invoke("lunch?"))[0] == "ForkedError"
        assert run_in_fork(lambda: own.memory.ready().ready) is False
        assert len(served.invoke("lunch?")) == len(own.invoke("lunch?", k=2)) == 2
        for each in (served, own):
            each.memory.close()


def test_a_retriever_cannot_be_sent_to_a_process(retriever):
    with pytest.raises(InvalidInputError, match="pass its path, and open it where it is needed"):
        pickle.dumps(retriever)


# The page.


def read_files():
    """The programs of the page, by name."""
    return dict(re.findall(r'```python title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))


def read_command(program):
    """A command of the page that starts with a program."""
    (line,) = re.findall(rf"^    {program} (.*)$", PAGE, re.MULTILINE)
    return [sys.executable, "-m", program, *line.split()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the files of the page, a memory on a Chroma server, and its environment."""
    folder = tmp_path_factory.mktemp("workers")
    for name, text in read_files().items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(
        "from crabpath_retrievers.vectors import embedder\n"
        "from langchain_core.embeddings import DeterministicFakeEmbedding\n"
        "embedder.load_default_embeddings = lambda: DeterministicFakeEmbedding(size=16)\n"
    )
    (folder / "wrong.py").write_text("from memory import *\nget_retriever()\n")
    for name in ("app", "pool", "loader", "tasks"):  # opened too early
        (folder / f"wrong_{name}.py").write_text(f"import wrong\n{read_files()[name + '.py']}")
    (folder / "celeryconfig.py").write_text(
        "broker_url = 'filesystem://'\n"
        f"result_backend = 'file://{folder}'\n"
        f"broker_transport_options = dict.fromkeys(('data_folder_in', 'data_folder_out', "
        f"'control_folder'), {str(folder / 'queue')!r})\n"
    )
    (folder / "queue").mkdir()
    server = ChromaServer(folder / "chroma")
    environment = {
        **os.environ,
        "CRABPATH_STORE": str(folder / "store"),
        "CRABPATH_VECTORS": f"http://127.0.0.1:{server.port}",
        "PYTHONPATH": str(folder),
        "PYTHONUNBUFFERED": "1",
    }
    made = (
        "import os; from crabpath_retrievers import CrabPathRetriever as R; R.from_texts("
        f"{TEXTS}, None, path=os.environ['CRABPATH_STORE'], vectors=os.environ['CRABPATH_VECTORS'])"
    )
    run_python(folder, environment, "-c", made)
    yield folder, environment
    server.disconnect()
    server.stop()


def run_python(folder, environment, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST * 2,
        check=False,
    )
    return done.stdout + done.stderr


@contextmanager
def started(folder, environment, command):
    """A program that goes on, and the file that it writes to."""
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield folder / "log"
        finally:
            process.terminate()
            process.wait(timeout=LONGEST)


def wait_for(said):
    """What ``said`` returns, once it is something."""
    until = time.monotonic() + LONGEST
    while not (found := said()):
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True], ids=["in each worker", "too early"])
def test_gunicorn_with_preload(place, early):
    folder, environment = place
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [*read_command("gunicorn")[:-1], f"--bind=127.0.0.1:{port}"]

    def ask():
        try:
            return httpx.get(f"http://127.0.0.1:{port}/?question=lunch", timeout=LONGEST)
        except httpx.ConnectError:
            return None

    with started(folder, environment, [*command, f"{'wrong_' * early}app:app"]) as log:
        answers = [wait_for(lambda: (found := ask()) is not None and [found])[0]]
        answers += [ask() for _ in range(5)]
        if early:
            assert {answer.status_code for answer in answers} == {500}
            assert SENTENCE in log.read_text()
        else:
            assert {frozenset(answer.text.splitlines()) for answer in answers} == {frozenset(TEXTS)}


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "fork"])
@pytest.mark.parametrize("early", [False, True], ids=["in each worker", "too early"])
def test_multiprocessing(place, early, start):
    folder, environment = place
    name = "wrong_pool.py" if early else "pool.py"
    text = (folder / name).read_text().replace('"spawn"', f'"{start}"')
    (folder / f"{start}_{name}").write_text(text)
    said = run_python(folder, environment, f"{start}_{name}")
    if early and start == "fork":
        assert SENTENCE in said
    else:
        assert said.count(TEXTS[1]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True], ids=["in each worker", "too early"])
def test_a_data_loader(place, early):
    folder, environment = place
    said = run_python(folder, environment, "wrong_loader.py" if early else "loader.py")
    assert (SENTENCE in said) == early
    assert any(text in said for text in TEXTS) != early


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True], ids=["in each worker", "too early"])
def test_celery(place, early):
    folder, environment = place
    module = "wrong_tasks" if early else "tasks"
    command = [part.replace("tasks", module) for part in read_command("celery")]
    ask = f"import tasks; print(tasks.answer.delay('lunch?').get(timeout={LONGEST}))"
    with started(folder, environment, command) as log:
        said = run_python(folder, environment, "-c", ask)
        assert SENTENCE in said if early else all(text in said for text in TEXTS), log.read_text()
