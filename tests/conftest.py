"""Fixtures shared by all tests: a real embedder, both databases, small corpora."""

import faulthandler
import gc
import logging
import os
import shutil
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

# gRPC reads this once, when Chroma imports it: its threads abort a forked process whose files
# are closed before another program takes its place, as the commands of PostgreSQL's server are.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# The workers of a run share the cores: more threads in each would spin while others compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import chromadb
import hypothesis
import minilm
import pytest
import scheduling
from chat_server import ChatServer
from databases import (
    EmptyStores,
    copy_of_chroma,
    copy_of_store,
    empty_schema,
    pgvector_schema,
    pgvector_server,
)
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from pytest_httpserver import HTTPServer

from crabpath_retrievers import CrabPath, CrabPathRetriever
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors import embedder
from tests.seams import wrap_function

_HANGS = 360.0  # seconds; other tests that take too long have been ended before

TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}

hypothesis.settings.register_profile("shared", deadline=None)  # cores may be busy elsewhere
hypothesis.settings.load_profile("shared")


def pytest_configure() -> None:
    """Directories of tests are made in memory where there is room: no store waits for a disk."""
    memory = Path("/dev/shm")  # noqa: S108  pytest makes a private directory in it
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """End a process that hangs in a library which holds the interpreter's lock.

    No time limit of Python is noticed there: Chroma's bindings may never come back from closing.
    """
    faulthandler.dump_traceback_later(_HANGS, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Files of tests go to workers, also after a worker was ended as above."""
    return scheduling.schedule(config, log)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_testnodedown(node: Any) -> None:
    """Schemathesis expects an output also of a process that was ended."""
    if not hasattr(node, "workeroutput"):
        node.workeroutput = {}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test has passed if its process hung as above, and another process ran it and it passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    failed, errors = (reporter.stats.get(name, []) for name in ("failed", "error"))
    passed = {report.nodeid for report in reporter.stats.get("passed", [])}
    again = [
        report.nodeid
        for report in failed
        if "crashed while running" in str(report.longrepr) and report.nodeid in passed
    ]
    if failed and not errors and len(again) == len(failed):
        reporter.write_line(f"hung once, and passed when run again: {', '.join(again)}")
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def garbage() -> Iterator[None]:
    """What a file of tests leaves open is that file's failure, not one of a later test."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """What a command sets in the log of this process ends with its test."""
    names = (None, "crabpath_retrievers", "crabpath_server", "crabpath_server.requests")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of the database run on both; others on SQLite, and with ``make test-all`` on both.

    Of the database are those in ``storage`` and those marked ``both_databases``.
    """
    test = metafunc.definition
    both = test.path.parent.name == "storage" or test.get_closest_marker("both_databases")
    postgres = pytest.param("postgresql", marks=() if both else pytest.mark.slow)
    databases = ["sqlite"] if test.get_closest_marker("sqlite") else ["sqlite", postgres]
    for fixture in {"location", "atlas"} & {*metafunc.fixturenames}:
        scope = "session" if fixture == "atlas" else "function"
        metafunc.parametrize(fixture, databases, indirect=True, scope=scope)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first, so that no worker is left with one alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """New stores of this process are copies of an empty one, and share one local model."""
    place = tmp_path_factory.mktemp("template")
    GraphStore(place / "store").close()
    settings = chromadb.Settings(anonymized_telemetry=False)
    chromadb.PersistentClient(path=str(place / "chroma"), settings=settings).close()
    with pytest.MonkeyPatch.context() as patch:
        wrap_function(patch, "open_engine", copy_of_store(place / "store" / "graph.sqlite"))
        chroma = copy_of_chroma(place / "chroma" / "chroma.sqlite3")
        patch.setattr(chromadb, "PersistentClient", chroma)
        patch.setattr(embedder, "load_default_embeddings", minilm.shared)
        # Random vectors of tests count like others; tests/vectors/test_prefixes.py has the rule.
        patch.setattr(embedder, "_LEAST_FOUND", 0)
        yield


@pytest.fixture(scope="session")
def embeddings() -> Embeddings:
    """all-MiniLM-L6-v2 from the packaged weights."""
    return minilm.shared()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A PostgreSQL schema without tables, dropped afterwards; skipped where no server answers."""
    with empty_schema() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_stores() -> Iterator[EmptyStores]:
    """Stores on PostgreSQL that tests have used before, empty again."""
    with ExitStack() as stack:
        yield EmptyStores(stack)


@pytest.fixture
def postgres_store(postgres_stores: EmptyStores) -> Iterator[str]:
    """URL of an empty store on PostgreSQL."""
    with postgres_stores.lent() as url:
        yield url


@pytest.fixture(scope="session")
def pgvector() -> Iterator[str]:
    """A PostgreSQL server with pgvector."""
    with pgvector_server() as url:
        yield url


@pytest.fixture
def pgvector_url(pgvector: str) -> Iterator[str]:
    """An empty schema on a server with pgvector."""
    with pgvector_schema(pgvector) as url:
        yield url


@pytest.fixture
def location(request: pytest.FixtureRequest, tmp_path) -> str:
    """Where a store may be made: a directory, or a PostgreSQL schema; see the hook above."""
    if request.param == "sqlite":
        return str(tmp_path / "memory")
    url: str = request.getfixturevalue("postgres_store")
    return url


@pytest.fixture
def store(location: str) -> Iterator[GraphStore]:
    """An empty store, once on each database."""
    opened = GraphStore(location)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def atlas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CrabPath]:
    """300 pages with regions, once on each database; page n mentions page n + 1.

    Tests share it: each learns in namespaces of its own, and adds and removes no document.
    """
    vectors = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": vectors, "vectors": InMemoryVectorStore(vectors)}
    pages = [
        Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
        for n in range(300)
    ]
    with ExitStack() as stack:
        place: str = str(tmp_path_factory.mktemp("atlas"))
        if request.param == "postgresql":
            place = stack.enter_context(empty_schema())
        memory = stack.enter_context(CrabPath.open(place, **given))
        memory.add_documents(pages, split=False)
        yield memory


@pytest.fixture
def namespace() -> str:
    """A namespace that nobody has used yet."""
    return uuid.uuid4().hex


@pytest.fixture
def retriever() -> Iterator[CrabPathRetriever]:
    """Three documents under vectors that mean nothing; one more still fits into an answer."""
    vectors = DeterministicFakeEmbedding(size=16)
    made = CrabPathRetriever.from_texts(TEXTS.values(), vectors, ids=list(TEXTS), k=len(TEXTS) + 1)
    yield made
    made.memory.close()


@pytest.fixture
def unchanged(retriever: CrabPathRetriever) -> Iterator[None]:
    """Both stores hold afterwards what they held before, and no turn was recorded."""
    before = {**retriever.memory.info(), "vectors": retriever.memory.index.count()}
    yield
    assert {**retriever.memory.info(), "vectors": retriever.memory.index.count()} == before
    assert not retriever.memory.store.catalog.has_unfinished_ingest()


@pytest.fixture
def chat_server(httpserver: HTTPServer) -> ChatServer:
    """A chat model on this machine that speaks as OpenAI's does, and says "ok" until told."""
    return ChatServer(httpserver, "ok")


@pytest.fixture(scope="session")
def make_httpserver() -> Iterator[HTTPServer]:
    """The server behind ``httpserver``; one slow answer does not hold up the next."""
    with HTTPServer(threaded=True) as server:
        yield server


@pytest.fixture
def refuse(cli):
    """What a command complains about, on one line; 2 is the exit code of unusable input.

    Runs commands as the fixture ``cli`` beside the test does.
    """

    def run(*arguments, code=2):
        result = cli(*arguments)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.stderr
        return " ".join(result.stderr.split())

    return run
