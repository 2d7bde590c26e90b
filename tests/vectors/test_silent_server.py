"""A Chroma server that accepts and says nothing is given up after the time limit."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import chromadb
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from proxy import Proxy

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.errors import StoreUnavailableError

pytestmark = pytest.mark.slow


@contextmanager
def expect_within(seconds: float) -> Iterator[None]:
    """What is inside takes no longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


@pytest.fixture
def proxy(server) -> Iterator[Proxy]:
    """The network before the Chroma server."""
    opened = Proxy(("127.0.0.1", server.port))
    yield opened
    opened.silent.clear()
    opened.cut()


@pytest.mark.parametrize("given", ["url", "client"])
def test_a_query_fails_in_time_and_works_again(proxy, tmp_path, given):
    name, client = f"t{uuid.uuid4().hex}", None
    if given == "url":
        vectors = f"http://127.0.0.1:{proxy.port}/{name}"
    else:
        vectors = client = chromadb.HttpClient(host="127.0.0.1", port=proxy.port)
    embeddings, settings = DeterministicFakeEmbedding(size=16), Settings(time_limit=0.5)
    with CrabPath.open(
        tmp_path, embeddings=embeddings, vectors=vectors, settings=settings
    ) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        turn = memory.retrieve("sky").turn.id
        proxy.silent.set()
        with expect_within(1.5), pytest.raises(StoreUnavailableError, match="cannot be reached"):
            memory.retrieve("sky")
        with expect_within(1.5):
            assert memory.record(Feedback(turn, 1.0)).status in {"applied", "waiting"}
        proxy.silent.clear()
        assert memory.retrieve("sky").documents
        proxy.silent.set()
        with expect_within(1.5):
            memory.close()
    proxy.silent.clear()
    if client is not None:
        client._server._session.close()
        client._admin_client._server._session.close()


def test_a_server_that_is_silent_from_the_start_is_unavailable(proxy, tmp_path):
    proxy.silent.set()
    with expect_within(2.0), pytest.raises(StoreUnavailableError, match="did not answer within"):
        CrabPath.open(
            tmp_path,
            embeddings=DeterministicFakeEmbedding(size=16),
            vectors=f"http://127.0.0.1:{proxy.port}",
            settings=Settings(time_limit=0.5),
        )
