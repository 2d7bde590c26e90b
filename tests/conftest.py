"""Fixtures shared by all tests: a real embedder, both databases, small corpora."""

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import hypothesis
import pytest
import sqlalchemy as sa
from chat_server import ChatServer
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from pytest_httpserver import HTTPServer

from crabpath_retrievers import CrabPath, CrabPathRetriever
from crabpath_retrievers.seeds.embedder import default_embeddings
from crabpath_retrievers.storage import GraphStore

POSTGRES = os.environ.get("CRABPATH_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1/test")
TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}

hypothesis.settings.register_profile("shared", deadline=None)  # cores may be busy elsewhere
hypothesis.settings.load_profile("shared")


# Minutes each: what begins with them does not end with one worker alone.
LONG = (
    "feedback/test_crash.py",
    "maintenance/test_replaced_killed.py",
    "soak/test_soak.py",
    "test_typing.py",
    "feedback/test_undo.py",
    "hosts/langgraph/test_server.py",
    "benchmarks/learning/test_command.py",
    "benchmarks/experiments/test_papers.py",
    "examples/test_langchain_examples.py",
    "test_demo.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, all others as they are."""
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG))


@pytest.fixture(scope="session")
def embeddings() -> Embeddings:
    """all-MiniLM-L6-v2 from the packaged weights."""
    return default_embeddings()


@contextmanager
def schema_of_its_own() -> Iterator[str]:
    """URL of a PostgreSQL schema that is dropped afterwards; skips where no server answers."""
    engine = sa.create_engine(POSTGRES)
    schema = f"crabpath_{uuid.uuid4().hex[:12]}"
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(f'CREATE SCHEMA "{schema}"'))
    except sa.exc.OperationalError:
        pytest.skip("no PostgreSQL at CRABPATH_TEST_POSTGRES")
    yield f"{POSTGRES}?options=-csearch_path%3D{schema}"
    with engine.begin() as connection:
        connection.execute(sa.text(f'DROP SCHEMA "{schema}" CASCADE'))
    engine.dispose()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A PostgreSQL schema of its own, dropped afterwards; skipped where no server answers."""
    with schema_of_its_own() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path) -> str:
    """Where a store may be made: a directory, then a PostgreSQL schema."""
    if request.param == "sqlite":
        return str(tmp_path / "memory")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def store(location: str) -> Iterator[GraphStore]:
    """An empty store, once on each database."""
    opened = GraphStore(location)
    yield opened
    opened.close()


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
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
            place = stack.enter_context(schema_of_its_own())
        memory = stack.enter_context(CrabPath.open(place, **given))
        memory.add_documents(pages, split=False)
        yield memory


@pytest.fixture
def whose() -> str:
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
    assert not retriever.memory.store.catalog.unfinished()


@pytest.fixture
def chat_server(httpserver: HTTPServer) -> ChatServer:
    """A chat model on this machine that speaks as OpenAI's does, and says "ok" until told."""
    return ChatServer(httpserver, "ok")


@pytest.fixture(scope="session")
def make_httpserver() -> Iterator[HTTPServer]:
    """The server behind ``httpserver``; one slow answer does not hold up the next."""
    with HTTPServer(threaded=True) as server:
        yield server
