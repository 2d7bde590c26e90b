"""A memory, applications over it, and real servers that clients of all kinds talk to."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from served import RIGHTS, running
from starlette.testclient import TestClient

from crabpath_retrievers import CrabPath
from crabpath_server import Access, add_token, create_app

PAGES = [
    Document("Deploys go through [[Pipeline]].", id="deploy", metadata={"title": "Deploy"}),
    Document("The pipeline runs on Hydra.", id="pipeline", metadata={"title": "Pipeline"}),
    Document("The sky is blue.", id="sky", metadata={"title": "Sky", "source": "sky.md"}),
]
LOCAL = "http://127.0.0.1"


@pytest.fixture
def memory(request, tmp_path) -> Iterator[CrabPath]:
    """Three pages on SQLite and Chroma; on both databases where a test uses ``location``, too."""
    embeddings = DeterministicFakeEmbedding(size=16)
    place, vectors = tmp_path / "memory", None
    if "location" in request.fixturenames:
        place, vectors = request.getfixturevalue("location"), tmp_path / "vectors"
    with CrabPath.open(place, embeddings=embeddings, vectors=vectors) as opened:
        opened.add_documents(PAGES)
        yield opened


@pytest.fixture
def client(memory) -> TestClient:
    """A client of a server without tokens."""
    return TestClient(create_app(memory), base_url=LOCAL)


@pytest.fixture
def token_file(tmp_path):
    """Where tokens are kept."""
    return tmp_path / "tokens.json"


@pytest.fixture
def as_bearer(memory, token_file):
    """Makes clients of one server, each with a token of its own."""
    add_token(token_file, ["nobody"], ["read"])
    app = create_app(memory, access=Access.from_file(token_file, check_seconds=0))

    def make(*namespaces: str, rights=RIGHTS) -> TestClient:
        token = add_token(token_file, list(namespaces), list(rights))
        return TestClient(app, base_url=LOCAL, headers={"Authorization": f"Bearer {token}"})

    return make


@pytest.fixture
def serve() -> Iterator:
    """Starts real servers, which end with the test."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(running(app))


@pytest.fixture
def until_ready():
    """Asks a server whether it is ready until it is; returns the answer."""

    def ask(client, seconds: float = 60.0):
        end = time.monotonic() + seconds
        while (answer := client.get("/ready")).status_code != 200 and time.monotonic() < end:
            time.sleep(0.02)
        return answer

    return ask


@pytest.fixture
def read_events():
    """Reads server-sent events: pairs of a name and data."""

    def read(text: str) -> list[tuple[str, dict]]:
        events = [event.split("\n") for event in text.strip().split("\n\n")]
        return [
            (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
            for name, data in events
        ]

    return read
