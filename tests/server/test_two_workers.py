"""Two workers over one database of PostgreSQL: what one has answered, the other one knows."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from starlette.testclient import TestClient

from crabpath_retrievers import CrabPath
from crabpath_server import create_app

LOCAL = "http://127.0.0.1"
VECTORS = DeterministicFakeEmbedding(size=16)


@pytest.fixture
def workers(postgres_store):
    """Clients of two servers, each with a memory of its own over the same stores."""
    given = {"embeddings": VECTORS, "vectors": InMemoryVectorStore(VECTORS)}
    with (
        CrabPath.open(postgres_store, **given) as one,
        CrabPath.open(postgres_store, **given) as other,
    ):
        one.add_documents([Document("The sky is blue."), Document("Grass is green.")])
        yield [TestClient(create_app(memory), base_url=LOCAL) for memory in (one, other)]


@pytest.mark.parametrize("session", [None, "s"])
def test_feedback_at_another_worker_is_about_the_last_answer(workers, session):
    """Never about the one before it, however soon it comes."""
    for number in range(5):
        asked, told = workers[number % 2], workers[1 - number % 2]
        question = {"text": f"Which colour has the sky, {number}?", "session": session}
        turn = asked.post("/v1/query", json=question).json()["turn_id"]
        said = told.post("/v1/feedback", json={"outcome": "up", "session": session})
        assert said.json()["turn_id"] == turn
