"""Sources over HTTP and MCP: no path of the server is shown, and what is shown finds them."""

import json
import time

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from starlette.testclient import TestClient

from crabpath_retrievers import CrabPath
from crabpath_server import create_app
from crabpath_server.client import CrabPathRetriever

GUIDE, SKY = "guide/deploy.md", "sky.md"


@pytest.fixture
def memory(tmp_path):
    """Files that were added by their absolute path."""
    folder = tmp_path / "secret place" / "docs"
    (folder / "guide").mkdir(parents=True)
    (folder / GUIDE).write_text("# Deploy\n\nDeploys go through [the sky](../sky.md).")
    (folder / SKY).write_text("The sky is blue.")
    embeddings = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(tmp_path / "memory", embeddings=embeddings) as opened:
        opened.sync([folder], progress=None)
        yield opened


def test_no_answer_names_a_place_of_the_server(client):
    answer = client.post("/v1/query", json={"text": "sky", "k": 2}).json()
    turn, ids = answer["turn_id"], [found["id"] for found in answer["documents"]]
    client.post("/v1/feedback", json={"turn_id": turn, "outcome": 1, "used": [GUIDE]})
    search = {"text": "sky", "k": 2}
    events = {"Accept": "text/event-stream"}
    said = [
        client.post("/v1/query", json=search).text,
        client.post("/v1/query", json=search, headers=events).text,
        client.post("/v1/search", json=search).text,
        client.request("DELETE", "/v1/documents", params={"source": "none.md"}).text,
        client.post("/v1/teach", json={"text": "x", "related": [GUIDE, "none"]}).text,
    ]
    paths = [
        "/v1/documents",
        f"/v1/documents/{GUIDE}",
        f"/v1/documents/{ids[0]}",
        "/v1/sources",
        "/v1/turns",
    ]
    paths += [
        "/v1/notes",
        "/v1/feedback",
        "/v1/learning",
        f"/v1/turns/{turn}",
        "/ready",
        "/openapi.json",
    ]
    paths += [f"/v1/graph/neighbors?node={ids[0]}", "/metrics", "/v1/session", "/v1/regions"]
    said += [client.get(path).text for path in paths]
    for name, arguments in (
        ("search", {"query": "sky"}),
        ("fetch", {"id": GUIDE}),
        ("explain", {"turn_id": turn}),
    ):
        said.append(json.dumps(call_tool(client, name, arguments)))
    for text in said:
        assert "secret place" not in text, text
    assert GUIDE in said[0]


def call_tool(client, name, arguments):
    response = client.post(
        "/mcp",
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments},
        },
        headers={"Accept": "application/json, text/event-stream"},
    )
    return response.json()["result"]


def test_what_is_shown_finds_filters_and_deletes(client):
    assert client.get("/v1/sources").json()["sources"] == {GUIDE: 1, SKY: 1}
    assert client.get("/v1/sources", params={"after": GUIDE}).json()["sources"] == {SKY: 1}
    assert client.get("/v1/sources", params={"under": "guide/"}).json()["sources"] == {GUIDE: 1}
    assert len(client.get("/v1/documents", params={"source": SKY}).json()["documents"]) == 1
    for condition in (SKY, {"$in": [SKY, "other"]}, {"$ne": GUIDE}):
        both = {"$and": [{"source": condition}, {"source": {"$ne": "x"}}]}
        for wanted in ({"source": condition}, both):
            body = {"text": "deploy", "k": 2, "filter": wanted}
            found = client.post("/v1/query", json=body).json()["documents"]
            assert [item["metadata"]["source"] for item in found] == [SKY], wanted
    assert call_tool(client, "fetch", {"id": GUIDE})["structuredContent"]["id"] == GUIDE
    assert client.request("DELETE", "/v1/documents", params={"source": SKY}).json()["deleted"] == 1
    time.sleep(1.1)  # the names of sources are read again: guide/ is common to all that is left
    assert client.get("/v1/sources").json()["sources"] == {"deploy.md": 1}
    assert client.delete(f"/v1/documents/{GUIDE}").json()["deleted"] == 1
    assert client.get("/v1/sources").json()["sources"] == {}


def test_what_is_shown_can_be_judged_corrected_and_related(memory, client, tmp_path):
    """By its source, or by an id that is a path, through every door."""
    place = str(tmp_path / "secret place" / "docs" / "river")
    river = Document("Rivers flow.", id=place, metadata={"source": f"{place}.md"})
    memory.add_documents([river], split=False, progress=None)
    found = call_tool(client, "search", {"query": "rivers"})["structuredContent"]["results"]
    assert "secret place" not in json.dumps(found)
    assert "river" in [result["id"] for result in found]
    for used in (["river"], [SKY], ["river.md", GUIDE]):
        given = {"turn_id": found[0]["turn_id"], "outcome": 1, "used": used, "source": "human"}
        assert not call_tool(client, "record_outcome", given)["isError"], used
    for name, body in (
        ("correct", {"text": "Rivers run.", "wrong": ["river"]}),
        ("teach", {"text": "Rivers are wet.", "related": ["river"]}),
        ("query", {"text": "rivers", "candidate_ids": ["river"]}),
    ):
        assert client.post(f"/v1/{name}", json=body).status_code == 200, name
    assert not call_tool(client, "correct", {"text": "They run.", "wrong": ["river"]})["isError"]
    failed = call_tool(client, "fetch", {"id": f"{place}s"})
    assert failed["isError"]
    assert "secret place" not in json.dumps(failed)


def test_what_a_client_sends_back_replaces_what_it_read(memory, serve):
    with CrabPathRetriever.connect(serve(create_app(memory))) as retriever:
        served = retriever.memory
        (document,) = served.documents(source=SKY)
        assert document.metadata["source"] == SKY
        document.page_content = "The sky is grey."
        served.add_documents([document], cleanup="incremental", progress=None)
        assert [d.page_content for d in served.documents(source=SKY)] == ["The sky is grey."]
        assert len(served.sources()) == 2
        assert served.forget(source=SKY) == 1


def test_relative_and_foreign_sources_stay_as_they_are(tmp_path):
    embeddings = DeterministicFakeEmbedding(size=16)
    names = ["a.md", "https://example.org/x", "docs/b.md"]
    documents = [Document(name, metadata={"source": name}) for name in names]
    with CrabPath.open(tmp_path / "other", embeddings=embeddings) as memory:
        memory.add_documents(documents, progress=None)
        client = TestClient(create_app(memory), base_url="http://127.0.0.1")
        assert sorted(client.get("/v1/sources").json()["sources"]) == sorted(names)


def test_a_source_is_not_shown_whole_as_soon_as_it_is_added():
    with CrabPath.open(embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        client = TestClient(create_app(memory), base_url="http://127.0.0.1")
        assert client.get("/v1/sources").json()["sources"] == {}
        given = {"documents": [{"text": "The sky is blue.", "metadata": {"source": "/etc/sky"}}]}
        client.post("/v1/documents", json=given)
        assert client.get("/v1/sources").json()["sources"] == {"sky": 1}
