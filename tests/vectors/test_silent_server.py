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

GIVEN = {"embeddings": DeterministicFakeEmbedding(size=16), "settings": Settings(time_limit=0.5)}


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


@pytest.mark.parametrize("by_client", [False, True])
def test_a_query_fails_in_time_and_works_again(proxy, tmp_path, by_client):
    vectors = f"http://127.0.0.1:{proxy.port}/t{uuid.uuid4().hex}"
    client = chromadb.HttpClient(host="127.0.0.1", port=proxy.port) if by_client else None
    with CrabPath.open(tmp_path, vectors=client or vectors, **GIVEN) as memory:
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
        CrabPath.open(tmp_path, vectors=f"http://127.0.0.1:{proxy.port}", **GIVEN)
