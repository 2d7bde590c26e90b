"""What each endpoint answers, and that no token reaches beyond its namespaces and rights."""

import re
from urllib.parse import quote

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from served import RIGHTS
from starlette.testclient import TestClient

from crabpath_retrievers import (
    InvalidInputError,
    StoreError,
    StoreLockedError,
    StoreUnavailableError,
    __version__,
)
from crabpath_retrievers.integration import Hop
from crabpath_server import create_app


def ok(response):
    assert response.status_code == 200, response.text
    return response.json()


def refused(response, status, kind="InvalidInputError"):
    """The sentence of an error: a problem as RFC 9457 has it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem.keys() >= {"type", "title", "status", "detail", "instance", "request_id"}
    assert problem["type"].startswith("https://")
    assert problem["type"].partition("#")[2] in {kind.lower(), "refused-feedback"}
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert "\n" not in problem["detail"]
    return problem["detail"]


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_a_question_its_outcome_and_the_undo(client, memory):
    answer = ok(client.post("/v1/query", json={"text": "how do deploys go?", "k": 2}))
    direct = memory.retrieve("how do deploys go?", k=2, record=False)
    assert [found["id"] for found in answer["documents"]] == [
        item.node.id for item in direct.documents
    ]
    first = answer["documents"][0]
    assert first["text"] == direct.documents[0].node.content
    assert first["score"] == direct.documents[0].score
    assert answer["namespace"] == "default"
    said = {"turn_id": answer["turn_id"], "outcome": "up", "used": [first["id"]], "user": "u1"}
    receipt = ok(client.post("/v1/feedback", json={**said, "feedback_id": "f1"}))
    assert (receipt["feedback_id"], receipt["status"], receipt["note"]) == ("f1", "applied", None)
    (listed,) = ok(client.get("/v1/feedback"))["feedback"]
    assert (listed["feedback_id"], listed["outcome"], listed["user"]) == ("f1", 1.0, "u1")
    (turn,) = ok(client.get("/v1/turns"))["turns"]
    assert (turn["id"], turn["feedback_id"]) == (answer["turn_id"], "f1")
    assert ok(client.post("/v1/undo", json={"feedback_id": "f1"}))["status"] == "undone"


def test_feedback_without_a_user_is_that_of_its_token(as_bearer, memory):
    """So what one token said can be listed and undone as a whole."""
    one, other = as_bearer("team"), as_bearer("team")
    for client, user in ((one, {}), (other, {}), (one, {"user": "eve"})):
        turn = ok(client.post("/v1/query", json={"text": "sky"}))["turn_id"]
        ok(client.post("/v1/feedback", json={"turn_id": turn, "outcome": "up", **user}))
    listed = ok(one.get("/v1/feedback"))["feedback"]
    eve, second, first = [entry["user"] for entry in listed]
    assert eve == "eve"
    assert first != second
    assert {first[:6], second[:6]} == {"token "}
    (undone,) = memory.learning.undo_all(user=first, namespace="team")
    assert undone.feedback_id == listed[-1]["feedback_id"]


def test_feedback_without_a_turn_is_about_the_last_answer(client):
    """Of the conversation, or of the namespace."""
    turns = {
        session: ok(client.post("/v1/query", json={"text": "sky", "session": session}))["turn_id"]
        for session in ("A", "B")
    }
    ok(client.post("/v1/feedback", json={"outcome": "up", "session": "A"}))
    assert {turn["id"] for turn in ok(client.get("/v1/turns"))["turns"] if turn["feedback_id"]} == {
        turns["A"]
    }
    ok(client.post("/v1/feedback", json={"outcome": "down"}))
    assert all(turn["feedback_id"] for turn in ok(client.get("/v1/turns"))["turns"])
    listed = ok(client.get("/v1/feedback"))["feedback"]
    assert [one["turn_id"] for one in listed] == [turns["B"], turns["A"]]


def test_feedback_that_counts_for_nothing_is_not_counted(client):
    turn = ok(client.post("/v1/query", json={"text": "sky"}))["turn_id"]
    for said in ({"turn_id": "made-up"}, {"turn_id": turn}, {"turn_id": turn}):
        client.post("/v1/feedback", json={"outcome": "up", **said})
    assert ok(client.get("/v1/overview"))["feedback"] == 1
    ok(client.post("/v1/undo", json={"turn_id": turn}))
    assert ok(client.get("/v1/overview"))["feedback"] == 0
    assert [one["feedback"] for one in ok(client.get("/v1/namespaces"))["namespaces"]] == [0]


def test_metadata_come_back_as_they_were_added(client, memory):
    """What is the caller's keeps its name; the key of answers is refused."""
    own = {"id": "x", "score": 3, "title": "T", "tags": ["a"], "deep": {"a": None}}
    page = {"id": "own", "text": "A page of its own.", "metadata": own}
    ok(client.post("/v1/documents", json={"documents": [page]}))
    for found in (
        ok(client.post("/v1/query", json={"text": "own page", "k": 4}))["documents"],
        ok(client.post("/v1/search", json={"text": "own page", "k": 4}))["documents"],
        ok(client.get("/v1/documents"))["documents"],
        [ok(client.get("/v1/documents/own"))],
    ):
        assert [one["metadata"] for one in found if one["id"] == "own"] == [own]
    taken = {"documents": [{"text": "x", "metadata": {"crabpath": 1}}]}
    assert "'crabpath' in its metadata" in refused(client.post("/v1/documents", json=taken), 400)
    assert ok(client.post("/v1/teach", json={"text": "x", "metadata": own}))["id"]
    assert memory.get_by_ids(["x"]) == []


def test_files_are_read_as_crabpath_add_reads_them(client):
    """Titles of headings connect them; of a page of HTML only what is read stays."""
    texts = {
        "deploy.md": "# Deploying\nA release goes out after the Release checklist.",
        "steps.md": "# Release checklist\nWait for the second signature.",
        "zebra.html": "<title>Zebras</title><script>var hidden = 1</script><p>Zebras run.</p>",
    }
    files = [
        {"id": name, "text": text, "is_file": True, "metadata": {"source": name, "by": "ann"}}
        for name, text in texts.items()
    ]
    ok(client.post("/v1/documents", json={"documents": files}))
    edges = ok(client.get("/v1/graph/neighbors?node=deploy.md&kind=mention"))["edges"]
    assert [edge["target"] for edge in edges] == ["steps.md"]
    page = ok(client.get("/v1/documents/zebra.html"))
    assert (page["title"], page["text"], page["metadata"]["by"]) == ("Zebras", "Zebras run.", "ann")
    files[0] |= {"text": "{", "metadata": {"source": "bad.json"}}
    assert "bad.json: not a readable" in refused(
        client.post("/v1/documents", json={"documents": files}), 400
    )
    del files[0]["metadata"]
    assert "metadata.source" in refused(
        client.post("/v1/documents", json={"documents": files}), 400
    )


def test_sentences_name_what_there_is_over_http(client):
    """No keywords, constants, classes or commands of Python and the shell."""
    turn = ok(client.post("/v1/query", json={"text": "sky", "k": 1}))["turn_id"]
    said = {"turn_id": turn, "outcome": 1}
    for path, body in (
        ("/v1/query", {"text": "x", "explore": -1}),
        ("/v1/query", {"text": "x", "k": 0}),
        ("/v1/query", {"text": "x", "filter": {"a": {"$near": 1}}}),
        ("/v1/query", {"text": "x", "filter": {"a": []}}),
        ("/v1/query", {"text": "x", "session": ""}),
        ("/v1/search", {"text": ""}),
        ("/v1/feedback", {"turn_id": "none", "outcome": 1}),
        ("/v1/feedback", {**said, "outcome": "great"}),
        ("/v1/feedback", {**said, "used": ["none"]}),
        ("/v1/feedback", {**said, "relevant": ["a"], "irrelevant": ["a"]}),
        ("/v1/feedback", {"outcome": 1, "session": "never"}),
        ("/v1/undo", {}),
        ("/v1/teach", {"text": "x " * 20_000}),
        ("/v1/correct", {"text": "x", "wrong": ["none"]}),
        ("/v1/graph/edges", {"source": "sky", "target": "deploy", "weight": 1, "kind": "none"}),
        ("/v1/snapshots/restore", {"snapshot": "none"}),
        ("/v1/maintenance", {"steps": ["none"]}),
        ("/v1/documents", {"documents": [{"text": "x", "metadata": {"crabpath": 1}}]}),
    ):
        answer = client.post(path, json=body)
        message = answer.json()["detail"]
        assert answer.status_code in (400, 404), message
        assert not re.search(
            r"\w=|\bTrue\b|\bFalse\b|CrabPath|LangChain|Settings|\w\(|`", message
        ), message
        assert not re.search(r"crabpath [a-z]+ |add_documents|memory\.", message), message
    assert "feedback_id" in refused(client.get("/v1/graph/changes"), 400)
    feedback = ok(client.post("/v1/feedback", json=said))["feedback_id"]
    assert "changes" in ok(client.get("/v1/graph/changes", params={"feedback_id": feedback}))


def test_feedback_that_cannot_be_learned_from(client):
    turn = ok(client.post("/v1/query", json={"text": "sky"}))["turn_id"]
    ok(client.post("/v1/feedback", json={"turn_id": turn, "outcome": True}))
    again = {"turn_id": turn, "outcome": True}
    assert ok(client.post("/v1/feedback", json=again))["repeated"] is True
    assert ok(client.post("/v1/feedback", json={**again, "outcome": False}))["status"] == "applied"
    below = client.post("/v1/feedback", json={**again, "source": "self"})
    assert "a person" in refused(below, 409)
    assert below.json()["title"] == "Refused feedback"
    assert below.json()["receipt"]["reason"] == "outranked"
    unknown = {"turn_id": "t0", "outcome": 1}
    refused(client.post("/v1/feedback", json=unknown), 404, "NotFoundError")
    for outcome in (2, "great", None, [], "NaN"):
        refused(client.post("/v1/feedback", json={"turn_id": turn, "outcome": outcome}), 400)
    said = client.post("/v1/feedback", json={"turn_id": turn, "outcome": None}).json()
    assert said["detail"].startswith("outcome must be from -1 (failure) to 1 (success); or true")


def test_hops_are_sent_as_they_happen_and_the_answer_last(client, read_events):
    body = {"text": "how do deploys go?", "explore": 7, "k": 1}
    response = client.post("/v1/query", json=body, headers={"Accept": "text/event-stream"})
    assert response.headers["content-type"].startswith("text/event-stream")
    *hops, (name, answer) = read_events(response.text)
    assert [kind for kind, _ in hops] == ["hop"] * len(hops)
    assert hops
    assert [hop["number"] for _, hop in hops] == list(range(1, len(hops) + 1))
    assert name == "answer"
    stored = ok(client.get("/v1/turns"))["turns"][0]
    assert (stored["id"], stored["documents"]) == (
        answer["turn_id"],
        [found["id"] for found in answer["documents"]],
    )


def test_an_error_before_the_first_event_has_its_status(client, memory, read_events, monkeypatch):
    """A later one is an event; it is counted with its status all the same."""
    events = {"Accept": "text/event-stream"}
    body = {"text": "sky", "filter": {"title": {"$no": 1}}}
    refused(client.post("/v1/query", json=body, headers=events), 400)
    refused(client.post("/v1/query", json=body), 400)

    async def break_off(_memory, _text, *, on_hop, **_options):
        on_hop(Hop(1, ("sky",), (), "policy"))
        msg = "the database is away"
        raise StoreUnavailableError(msg)

    monkeypatch.setattr(type(memory.aio), "retrieve", break_off)
    response = client.post("/v1/query", json={"text": "sky"}, headers=events)
    *_, (name, data) = read_events(response.text)
    assert (response.status_code, name, data["status"]) == (200, "error", 503)
    counted = r'duration_seconds_count{.*status_code="503",http_route="/v1/query"'
    assert re.search(counted, client.get("/metrics").text)


@pytest.mark.parametrize(
    ("accept", "is_stream"),
    [
        ("text/event-stream", True),
        ("application/json, text/event-stream", True),
        ("text/event-stream;q=0", False),
        ("application/json;q=0.9, text/event-stream; q=0.1", False),
        ("*/*", False),
    ],
)
def test_weights_of_accept(client, accept, is_stream):
    response = client.post("/v1/query", json={"text": "sky"}, headers={"Accept": accept})
    assert ("event-stream" in response.headers["content-type"]) == is_stream


def test_options_of_a_question(client):
    def ids(**options):
        answer = ok(client.post("/v1/query", json={"text": "deploys", **options}))
        return [found["id"] for found in answer["documents"]]

    assert ids(filter={"title": "Sky"}) == ["sky"]
    assert ids(candidate_ids=["pipeline"]) == ["pipeline"]
    assert len(ids(k=1, seed_ids=["deploy"], boost_tags=["x"], task_type="t", session="s")) == 1
    assert ids(min_score=1.0, fill=False) == []
    headers = client.get("/v1/turns").headers
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    before = len(ok(client.get("/v1/turns"))["turns"])
    ids(record=False)
    assert len(ok(client.get("/v1/turns"))["turns"]) == before


def test_plain_search_for_comparison(client):
    (found,) = ok(client.post("/v1/search", json={"text": "The sky is blue.", "k": 1}))["documents"]
    assert (found["id"], found["title"], found["path"]) == ("sky", "Sky", [])
    assert ok(client.get("/v1/turns"))["turns"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a/b", "../../etc/passwd", "a b?c#d%2F", "/", "ü/日本", "a//b/"])
def test_documents_under_any_id(memory, serve, name):
    with httpx.Client(base_url=serve(create_app(memory))) as client:
        given = {"id": name, "text": "# One\n\nFirst.\n\n# Two\n\nSecond.", "metadata": {"x": [1]}}
        counts = ok(client.post("/v1/documents", json={"documents": [given]}))
        assert counts["added"] == len(counts["ids"]) >= 1
        path = "/v1/documents/" + "".join(f"%{byte:02X}" for byte in name.encode())
        read = ok(client.get(path))
        assert read["id"] == name
        assert read["metadata"]["x"] == [1]
        assert [chunk["id"] for chunk in read["chunks"]] == counts["ids"]
        assert "Second." in read["text"]
        assert ok(client.delete(path))["deleted"] == len(counts["ids"])
        refused(client.get(path), 404, "NotFoundError")
        assert ok(client.delete(path))["deleted"] == 0


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_documents_by_words_by_source_and_their_deletion(client):
    listed = ok(client.get("/v1/documents"))["documents"]
    assert [document["id"] for document in listed] == ["deploy", "pipeline", "sky"]
    (hit,) = ok(client.get("/v1/documents", params={"q": "hydra"}))["documents"]
    assert hit["id"] == "pipeline"
    (one,) = ok(client.get("/v1/documents", params={"source": "sky.md", "limit": 5}))["documents"]
    assert one["title"] == "Sky"
    assert ok(client.get("/v1/sources"))["sources"]["sky.md"] == 1
    assert ok(client.delete("/v1/documents", params={"source": "sky.md"}))["deleted"] == 1
    refused(client.delete("/v1/documents"), 400)
    assert "sky.md" not in ok(client.get("/v1/sources"))["sources"]


def test_notes_and_corrections(client):
    note = ok(
        client.post("/v1/teach", json={"text": "Nobody deploys on a Friday.", "id": "friday"})
    )
    turn = ok(client.post("/v1/query", json={"text": "sky"}))["turn_id"]
    said = {"text": "The sky is grey.", "turn_id": turn, "wrong": ["sky"]}
    correction = ok(client.post("/v1/correct", json=said))
    listed = ok(client.get("/v1/notes"))["notes"]
    assert [item["id"] for item in listed] == [correction["id"], note["id"]]
    assert [item["kind"] for item in listed] == ["correction", "teaching"]
    assert ok(client.get("/v1/documents/friday"))["text"] == "Nobody deploys on a Friday."
    refused(client.post("/v1/teach", json={"text": "x", "related": ["none"]}), 404, "NotFoundError")
    refused(client.post("/v1/teach", json={"text": " "}), 400)


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_a_correction_without_a_turn_is_about_the_last_answer(client, memory):
    """As feedback without one; what is said of a question or of documents needs no answer."""
    assert "give the turn_id" in refused(client.post("/v1/correct", json={"text": "Grey."}), 400)
    for session in ("one", "two"):
        ok(client.post("/v1/query", json={"text": f"sky {session}", "session": session}))
    assert ok(client.post("/v1/correct", json={"text": "Grey.", "session": "one"}))
    assert ok(client.post("/v1/correct", json={"text": "Black.", "wrong": []}))
    assert ok(client.post("/v1/correct", json={"text": "Red.", "query": "sky three"}))
    assert ok(client.post("/v1/correct", json={"text": "Green.", "wrong": ["sky"]}))
    said = {note.text: note.query for note in memory.notes()}
    wanted = {"Grey.": "sky one", "Black.": "sky two", "Red.": "sky three", "Green.": None}
    assert said == wanted
    unknown = {"text": "Grey.", "session": "three"}
    assert "conversation 'three'" in refused(client.post("/v1/correct", json=unknown), 400)
    assert len(memory.notes()) == len(wanted)


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_turns_page_by_page(client):
    asked = [ok(client.post("/v1/query", json={"text": f"sky {n}"}))["turn_id"] for n in range(3)]
    newest = ok(client.get("/v1/turns", params={"limit": 2}))["turns"]
    rest = ok(client.get("/v1/turns", params={"after": newest[-1]["id"]}))["turns"]
    assert [turn["id"] for turn in newest + rest] == asked[::-1]
    refused(client.get("/v1/turns", params={"after": "t0"}), 404, "NotFoundError")


def test_health_readiness_and_session(client, memory, until_ready):
    assert ok(client.get("/health")) == {"status": "ok"}
    assert ok(until_ready(client))["ready"] is True
    session = ok(client.get("/v1/session", headers={"CrabPath-Namespace": "ann"}))
    assert session == {
        "namespace": "ann",
        "namespaces": ["*"],
        "rights": sorted(RIGHTS),
        "giver": None,
        "version": __version__,
    }
    assert client.head("/health").status_code == 200
    for name in (b"%ff", b"\xff"):
        said = client.get("/v1/session", headers={b"CrabPath-Namespace": name})
        assert "percent-encoded UTF-8" in refused(said, 400)
    memory.close()
    closed = client.get("/ready")
    assert (closed.status_code, closed.json()["ready"]) == (503, False)
    assert ok(client.get("/health")) == {"status": "ok"}
    for method, path, body in (
        ("POST", "/v1/query", {"text": "sky"}),
        ("GET", "/v1/turns", None),
        ("POST", "/v1/teach", {"text": "x"}),
        ("GET", "/v1/documents/sky", None),
    ):
        assert client.request(method, path, json=body).status_code in {400, 503}, path


def test_why_a_store_is_away_is_told_to_the_right_admin_alone(memory, as_bearer, until_ready):
    ann, bob = as_bearer("ann", rights=["admin"]), as_bearer("bob", rights=["read"])
    until_ready(ann)
    assert ok(bob.get("/ready")) == {"ready": True, "reason": "all parts answer"}
    memory.close()
    assert "closed" in ann.get("/ready").json()["reason"]
    assert "closed" not in bob.get("/ready").text
    del ann.headers["Authorization"]
    answer = ann.get("/ready")
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert "closed" not in answer.text
    assert ann.get("/ready", headers={"Authorization": "Bearer wrong"}).status_code == 503


def test_errors_of_stores_name_no_places_of_the_server(
    memory, client, tmp_path, caplog, monkeypatch
):
    def fail(*_arguments):
        msg = f"Chroma in {tmp_path} failed"
        raise StoreError(msg)

    monkeypatch.setattr(type(memory.index), "search", fail)
    failed = client.post("/v1/query", json={"text": "sky"})
    assert failed.status_code == 503
    assert str(tmp_path) not in failed.text
    assert str(tmp_path) in caplog.text


def test_each_endpoint_needs_its_right(memory, as_bearer):
    app = create_app(memory)
    needed = {
        (method, path): operation
        for path, operations in app_description(app).items()
        for method, operation in operations.items()
        if operation["security"]
    }
    assert len(needed) > 10
    for (method, path), operation in needed.items():
        (right,) = re.findall(r"Right: (\w+)\.", operation["description"])
        if right == "any":
            continue
        others = as_bearer("ann", rights=[name for name in RIGHTS if name != right])
        url = path.replace("{id}", "sky")
        message = refused(others.request(method, url, json={}), 403, "ForbiddenError")
        assert right in message
        del others.headers["Authorization"]
        response = others.request(method, url, json={})
        refused(response, 401, "TokenError")
        assert response.headers["WWW-Authenticate"] == "Bearer"


def app_description(app):
    return ok(TestClient(app, base_url="http://localhost").get("/openapi.json"))["paths"]


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_a_namespace_with_characters_that_are_not_stored_is_refused(as_bearer):
    for name in ("ann%00", "%00ann", "%20ann", "ann%09"):
        header = {"CrabPath-Namespace": name}
        assert "no NUL" in refused(as_bearer("*").get("/v1/turns", headers=header), 400)


def test_a_token_reaches_its_namespaces_alone(as_bearer):
    ann, bob = as_bearer("ann", "team"), as_bearer("bob")
    turn = ok(ann.post("/v1/query", json={"text": "sky"}))["turn_id"]
    said = {"turn_id": turn, "outcome": 1}
    refused(bob.post("/v1/feedback", json=said), 404, "NotFoundError")
    feedback = ok(ann.post("/v1/feedback", json={**said, "feedback_id": "f1"}))["feedback_id"]
    note = ok(ann.post("/v1/teach", json={"text": "A secret of Ann about the sky."}))["id"]
    assert [item["status"] for item in ok(bob.get("/v1/feedback"))["feedback"]] == ["refused"]
    assert ok(bob.get("/v1/notes"))["notes"] == []
    assert ok(bob.get("/v1/turns"))["turns"] == []
    refused(bob.post("/v1/undo", json={"feedback_id": feedback}), 404, "NotFoundError")
    refused(bob.post("/v1/undo", json={"turn_id": turn}), 404, "NotFoundError")
    refused(bob.get(f"/v1/documents/{note}"), 404, "NotFoundError")
    assert ok(bob.delete(f"/v1/documents/{note}"))["deleted"] == 0
    refused(bob.post("/v1/correct", json={"text": "x", "turn_id": turn}), 404, "NotFoundError")
    refused(bob.get("/v1/turns", params={"after": turn}), 404, "NotFoundError")
    found = ok(bob.post("/v1/query", json={"text": "secret of Ann", "candidate_ids": [note]}))
    assert found["documents"] == []
    assert "Ann" not in bob.post("/v1/query", json={"text": "secret of Ann", "k": 100}).text
    own = ok(bob.post("/v1/query", json={"text": "sky"}))["turn_id"]
    same = {"turn_id": own, "outcome": 1, "feedback_id": "f1"}
    receipt = ok(bob.post("/v1/feedback", json=same))
    assert (receipt["status"], receipt["note"]) == ("applied", None)
    assert ok(bob.post("/v1/teach", json={"text": "Bob's own.", "id": note}))["id"] == note
    assert ok(ann.get(f"/v1/documents/{note}"))["text"] == "A secret of Ann about the sky."
    header = {"CrabPath-Namespace": "ann"}
    refused(bob.get("/v1/session", headers=header), 403, "ForbiddenError")
    refused(bob.post("/v1/query", json={"text": "sky"}, headers=header), 403, "ForbiddenError")
    assert ok(ann.get("/v1/session", headers={"CrabPath-Namespace": "team"}))["namespace"] == "team"
    for name in ("namespace", "Namespace"):
        refused(bob.post("/v1/query", json={"text": "sky", name: "ann"}), 400)
        refused(bob.get("/v1/turns", params={name: "ann"}), 400)
    assert len(ok(ann.get("/v1/turns"))["turns"]) == 1
    assert ok(ann.get("/v1/documents/sky"))["text"] == "The sky is blue."


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_a_deleted_document_takes_no_note_of_others_along(as_bearer, memory):
    """A note may have the id of a document that has several chunks."""
    ann, bob = as_bearer("ann"), as_bearer("bob")
    text = "# One\n\n" + "First. " * 400 + "\n\n# Two\n\n" + "Second. " * 400
    added = ok(ann.post("/v1/documents", json={"documents": [{"id": "both", "text": text}]}))
    assert len(added["ids"]) > 1
    ok(bob.post("/v1/teach", json={"text": "A note of Bob.", "id": "both"}))
    assert ok(ann.delete("/v1/documents/both"))["deleted"] == len(added["ids"])
    assert ok(bob.get("/v1/documents/both"))["text"] == "A note of Bob."
    assert ok(ann.delete("/v1/documents/both"))["deleted"] == 0
    with pytest.raises(InvalidInputError, match="give ids"):
        memory.forget(source="x", notes_of="bob")
    assert ok(bob.delete("/v1/documents/both"))["deleted"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/static/nothing", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("GET", "/static/..%2fapp.py", 404),
        ("GET", "/static//etc/passwd", 404),
        ("GET", "/nothing", 404),
        ("GET", "/v1/documents/", 404),
        ("GET", "/QUERY", 404),
        ("GET", "/v1/query/", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("POST", "/", 405),
        ("PUT", "/v1/query", 405),
        ("OPTIONS", "/v1/query", 405),
        ("POST", "/v1/turns", 405),
        ("TRACE", "/health", 405),
    ],
)
def test_what_does_not_exist(client, method, path, status):
    kind = "NotFoundError" if status == 404 else "InvalidInputError"
    response = client.request(method, path)
    refused(response, status, kind)
    assert ("allow" in response.headers) == (status == 405)
    assert "access-control-allow-origin" not in response.headers


def test_a_path_of_before_names_the_one_of_now(client):
    for method, path in (("POST", "/query"), ("GET", "/documents/a%2Fb%20%25"), ("GET", "/turns")):
        said = refused(client.request(method, path, json={}), 404, "NotFoundError")
        assert said.endswith(f"use /v1{path}")
    for path in ("/health", "/ready", "/metrics"):
        said = refused(client.get(f"/v1{path}"), 404, "NotFoundError")
        assert said.endswith(f"use {path}")
    assert "/v1/nothing" not in refused(client.get("/nothing"), 404, "NotFoundError")
    assert "there is nothing at this path" in refused(client.get("/v1/"), 404, "NotFoundError")


def test_every_answer_has_the_id_of_its_request(client):
    """The one that came with it, or a new one where that is not safe to keep."""
    for path in ("/", "/health", "/metrics", "/nothing", "/v1/turns", "/openapi.json"):
        answer = client.get(path, headers={"X-Request-Id": "shop:42/a=b"})
        assert answer.headers["x-request-id"] == "shop:42/a=b", path
    unsafe = ("", "a b", "a\tb", 'a"b', "x" * 129, "\x1b[2J", "ä".encode())
    made = {
        client.get("/health", headers={"X-Request-Id": one}).headers["x-request-id"]
        for one in unsafe
    }
    assert len(made) == len(unsafe)
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)
    path = "/v1/turns/a%2F%C3%BC%0A"
    problem = client.get(path, headers={"X-Request-Id": "one"}).json()
    assert (problem["request_id"], problem["instance"]) == ("one", "/v1/turns/a/%C3%BC%0A")
    events = {"Accept": "text/event-stream", "X-Request-Id": "two"}
    body = {"text": "sky", "filter": {"title": {"$no": 1}}}
    assert client.post("/v1/query", json=body, headers=events).json()["request_id"] == "two"


def read_pages(client, path, name, **parameters):
    """All items of a list, two a page; the answer says where the next page begins."""
    items, after = [], {}
    while True:
        page = ok(client.get(path, params={**parameters, **after, "limit": 2}))
        items += page[name]
        if page["next"] is None:
            return items
        assert len(page[name]) == 2
        after = {"after": page["next"]}


def delete_pages(client, path, name, **parameters):
    """Ids of a list, two a page; each page is deleted before the next one is asked for."""
    after, seen = {}, []
    while True:
        page = ok(client.get(path, params={**parameters, **after, "limit": 2}))
        for item in page[name]:
            seen.append(item["id"])
            assert ok(client.delete(f"/v1/documents/{quote(item['id'], safe='')}"))["deleted"]
        if page["next"] is None:
            return seen
        after = {"after": page["next"]}


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_lists_go_on_after_what_was_deleted(client, memory):
    """A loop that deletes each page sees every document and note; a list does not end by it."""
    names = [f"{folder}/{n}" for n in range(5) for folder in ("b", "a")]
    items = [{"id": name, "text": f"Sky {name}.", "metadata": {"source": name}} for name in names]
    memory.forget([page.id for page in memory.documents()])
    for parameters, expected in (({}, names), ({"under": "a/"}, sorted(names)[:5])):
        ok(client.post("/v1/documents", json={"documents": items}))
        assert delete_pages(client, "/v1/documents", "documents", **parameters) == expected
    for number in range(5):
        ok(client.post("/v1/teach", json={"text": f"Note {number}.", "id": f"n{number}"}))
    assert delete_pages(client, "/v1/notes", "notes") == [
        f"n{number}" for number in (4, 3, 2, 1, 0)
    ]


def test_a_place_in_a_list_does_not_show_the_directory_of_the_server(client, memory):
    """What stood there may be deleted."""
    names = [f"/srv/files/{folder}/{n}" for n in range(5) for folder in ("b", "a")]
    memory.add_documents(
        Document(page_content="Sky.", id=name, metadata={"source": name}) for name in names
    )
    page = ok(client.get("/v1/documents", params={"under": "a/", "limit": 2}))
    assert "srv" not in page["next"]
    found = delete_pages(client, "/v1/documents", "documents", under="a/")
    assert found == [f"a/{n}" for n in range(5)]


@pytest.mark.usefixtures("location")
def test_a_list_by_words_says_that_its_place_is_deleted(client):
    """It has no lasting order: an end without a word would hide documents."""
    items = [{"id": f"{n}", "text": f"Sky {n}."} for n in range(5)]
    ok(client.post("/v1/documents", json={"documents": items}))
    page = ok(client.get("/v1/documents", params={"q": "sky", "limit": 2}))
    ok(client.delete(f"/v1/documents/{page['next']}"))
    found = client.get("/v1/documents", params={"q": "sky", "after": page["next"]})
    refused(found, 404, "NotFoundError")


@pytest.mark.both_databases
@pytest.mark.usefixtures("location")
def test_lists_go_on_page_by_page(client):
    """Documents, sources, notes and feedback in the order of the whole list, each once."""
    text = "".join(f"# Part {n}\n\n" + f"Word number {n}. " * 60 + "\n\n" for n in range(5))
    pages = [
        {"id": f"a/{n}%ü", "text": text.replace("Word", f"Word{n}"), "metadata": {"source": source}}
        for n, source in enumerate(("z.md", "docs/b.md", "docs/a.md"))
    ]
    ok(client.post("/v1/documents", json={"documents": pages}))
    for number in range(5):
        ok(client.post("/v1/teach", json={"text": f"Note {number}.", "id": f"n{number}/ü"}))
        turn = ok(client.post("/v1/query", json={"text": f"sky {number}"}))["turn_id"]
        said = {"turn_id": turn, "outcome": 1, "feedback_id": f"f{number}"}
        ok(client.post("/v1/feedback", json=said))
    for path, name, parameters in (
        ("/v1/documents", "documents", {}),
        ("/v1/documents", "documents", {"source": "z.md"}),
        ("/v1/documents", "documents", {"under": "docs/"}),
        ("/v1/documents", "documents", {"q": "word number"}),
        ("/v1/notes", "notes", {}),
        ("/v1/feedback", "feedback", {}),
        ("/v1/feedback", "feedback", {"turn_id": turn}),
        ("/v1/turns", "turns", {}),
    ):
        whole = ok(client.get(path, params={**parameters, "limit": 1000}))
        assert whole["next"] is None
        assert len(whole[name]) > (0 if "turn_id" in parameters else 4), (path, parameters)
        assert read_pages(client, path, name, **parameters) == whole[name], (path, parameters)
        refused(client.get(path, params={"after": "none"}), 404, "NotFoundError")
    sources = ok(client.get("/v1/sources", params={"limit": 2}))
    rest = ok(client.get("/v1/sources", params={"after": sources["next"]}))
    both = {**sources["sources"], **rest["sources"]}
    assert both == ok(client.get("/v1/sources"))["sources"]


def test_large_answers_are_compressed_where_the_client_takes_it(client, read_events):
    ok(
        client.post(
            "/v1/documents", json={"documents": [{"text": " ".join(map(str, range(5000)))}]}
        )
    )
    for headers, encoding in (
        ({"Accept-Encoding": "gzip"}, "gzip"),
        ({"Accept-Encoding": ""}, None),
        ({"Accept-Encoding": "identity;q=1, gzip;q=0"}, None),
    ):
        answer = client.get("/v1/documents", headers=headers)
        assert answer.headers.get("content-encoding") == encoding
        assert ok(answer)["documents"]
    assert "content-encoding" not in client.get("/health").headers
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    streamed = client.post("/v1/query", json={"text": "17"}, headers=headers)
    assert "content-encoding" not in streamed.headers
    assert read_events(streamed.text)[-1][0] == "answer"


def test_questions_in_a_batch(client):
    body = {"questions": [{"text": "sky", "k": 1}, {"text": "how do deploys go?", "k": 2}]}
    answers = ok(client.post("/v1/query/batch", json=body))["answers"]
    assert [len(answer["documents"]) for answer in answers] == [1, 2]
    asked = {turn["id"]: turn["query"] for turn in ok(client.get("/v1/turns"))["turns"]}
    assert [asked[answer["turn_id"]] for answer in answers] == ["sky", "how do deploys go?"]
    for questions in ([], [{"text": "sky"}] * 101):
        refused(client.post("/v1/query/batch", json={"questions": questions}), 400)
    filtered = {"text": "sky", "filter": {"title": {"$bad": 1}}}
    for bad in (
        {"text": " "},
        {},
        {"text": "sky", "k": 0},
        {"text": "sky", "as_of": "soon"},
        filtered,
    ):
        body = {"questions": [{"text": "sky"}, bad]}
        said = refused(client.post("/v1/query/batch", json=body), 400)
        assert said.startswith("questions[1]")
    assert len(ok(client.get("/v1/turns"))["turns"]) == len(asked)


def test_whole_numbers_of_parameters(client):
    for text in ("1.0", "1e1", "one", " 1"):
        said = refused(client.get("/v1/turns", params={"limit": text}), 400)
        assert said == f"limit must be a whole number, not {text!r}"
    assert ok(client.get("/v1/turns", params={"limit": "1"}))["turns"] == []


def test_ids_without_a_path_of_their_own_are_refused(client):
    for name in (".", "..", "", "sky\x00"):
        body = {"documents": [{"id": name, "text": "No client asks for it."}]}
        assert "another id" in refused(client.post("/v1/documents", json=body), 400)


def test_a_document_does_not_take_the_place_of_a_note(as_bearer):
    """Of its own namespace; one of another namespace is not told of it."""
    ann, bob = as_bearer("ann"), as_bearer("bob")
    ok(ann.post("/v1/teach", json={"text": "The vault code is 4711.", "id": "vault"}))
    given = {"documents": [{"id": "vault", "text": "Pasta takes nine minutes."}]}
    assert "'vault' is that of a note" in refused(ann.post("/v1/documents", json=given), 400)
    assert ok(ann.get("/v1/documents/vault"))["text"] == "The vault code is 4711."
    ok(bob.post("/v1/documents", json=given))


def test_an_embedder_that_fails(client, monkeypatch, caplog):
    """Answered with 503, and said in the log once."""

    def fail(*_):
        msg = "connection refused"
        raise OSError(msg)

    bodies = {
        "query": {"text": "sun"},
        "search": {"text": "sun"},
        "query/batch": {"questions": [{"text": "sun"}, {"text": "moon"}]},
        "documents": {"documents": [{"text": "The sun is hot."}]},
        "teach": {"text": "The sun is hot."},
    }
    for name in ("embed_query", "embed_documents", "aembed_query"):
        monkeypatch.setattr(DeterministicFakeEmbedding, name, fail)
    for path, body in bodies.items():
        caplog.clear()
        response = client.post(f"/v1/{path}", json=body)
        assert "embedder" in refused(response, 503, "ServiceError"), path
        assert int(response.headers["retry-after"]) >= 1
        said = [one for one in caplog.records if one.message == "the embedder failed"]
        assert len(said) == 1, path


def test_what_one_user_said_is_deleted(as_bearer, memory):
    """Undone, and without its texts and the name; others and their namespaces keep theirs."""
    admin, other = as_bearer("team"), as_bearer("other")
    for client in (admin, other):
        for user in ("eve", "bob"):
            turn = ok(client.post("/v1/query", json={"text": f"sky {user}"}))["turn_id"]
            said = {"turn_id": turn, "outcome": -1, "user": user, "correction": f"Says {user}."}
            ok(client.post("/v1/feedback", json={**said, "answer": f"Blue, {user}."}))
    gone = ok(admin.post("/v1/feedback/forget", json={"user": "eve"}))
    assert gone == {"feedback": 1}
    kept = ok(admin.get("/v1/feedback"))["feedback"]
    assert [(one["user"], one["correction"], one["status"]) for one in kept] == [
        ("bob", "Says bob.", "applied"),
        (None, None, "undone"),
    ]
    assert [note["text"] for note in ok(admin.get("/v1/notes"))["notes"]] == ["Says bob."]
    assert len(ok(other.get("/v1/notes"))["notes"]) == 2
    assert "eve" in [one["user"] for one in ok(other.get("/v1/feedback"))["feedback"]]
    assert ok(admin.post("/v1/feedback/forget", json={"user": "eve"})) == {"feedback": 0}


def test_a_namespace_is_exported_and_deleted(as_bearer, memory, tmp_path):
    ann, bob = as_bearer("ann ü"), as_bearer("bob")
    for client in (ann, bob):
        turn = ok(client.post("/v1/query", json={"text": "sky"}))["turn_id"]
        ok(client.post("/v1/feedback", json={"turn_id": turn, "outcome": 1}))
        ok(client.post("/v1/teach", json={"text": "The sky is grey."}))
    saved = ann.get("/v1/namespaces/export")
    assert saved.headers["content-type"] == "application/zip"
    (tmp_path / "ann.crabpath").write_bytes(saved.content)
    said = ann.post("/v1/namespaces/forget", json={"confirm": "bob"})
    assert "confirm must be" in refused(said, 400)
    gone = ok(ann.post("/v1/namespaces/forget", json={"confirm": "ann ü", "erase": True}))
    assert (gone["turns"], gone["notes"], gone["feedback"]) == (1, 1, 1)
    assert ok(ann.get("/v1/turns"))["turns"] == ok(ann.get("/v1/notes"))["notes"] == []
    assert len(ok(bob.get("/v1/notes"))["notes"]) == 1
    memory.transfer.import_archive(tmp_path / "ann.crabpath", rename="back")
    assert [note.text for note in memory.notes(namespace="back")] == ["The sky is grey."]


def test_what_is_deleted_and_not_yet_erased_is_said(client, memory, monkeypatch):
    ok(client.post("/v1/query", json={"text": "sky"}))

    def fail():
        msg = f"{memory.store.name} is in use"
        raise StoreLockedError(msg)

    monkeypatch.setattr(memory.store, "erase", fail)
    body = {"confirm": "default", "erase": True}
    said = refused(client.post("/v1/namespaces/forget", json=body), 409, "StoreLockedError")
    assert "is deleted" in said
    assert "send the same request again" in said
    monkeypatch.undo()
    assert ok(client.get("/v1/turns"))["turns"] == []
    ok(client.post("/v1/namespaces/forget", json=body))


def test_a_request_with_a_known_key_has_the_former_answer(client):
    """Also while the first one is being answered; another body or sender is another request."""
    key = {"Idempotency-Key": "one"}
    body = {"documents": [{"text": "Water is wet.", "id": "water"}]}
    first = ok(client.post("/v1/documents", json=body, headers=key))
    assert first["added"] == 1
    assert ok(client.post("/v1/documents", json=body, headers=key)) == first
    assert ok(client.post("/v1/documents", json=body))["unchanged"] == 1
    elsewhere = key | {"CrabPath-Namespace": "elsewhere"}
    assert ok(client.post("/v1/documents", json=body, headers=elsewhere))["unchanged"] == 1
    other = {"documents": [{"text": "Fire is hot."}]}
    assert "another body" in refused(client.post("/v1/documents", json=other, headers=key), 400)
    bad = {"documents": [{"text": "x", "metadata": {"crabpath": 1}}]}
    again = {"Idempotency-Key": "two"}
    refused(client.post("/v1/documents", json=bad, headers=again), 400)
    assert ok(client.post("/v1/documents", json=other, headers=again))["added"] == 1
    for name in ("", "x" * 256, "\x1b"):
        refused(client.post("/v1/documents", json=body, headers={"Idempotency-Key": name}), 400)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/documents?after=%00", "/v1/documents?source=a%00", "/v1/documents/a%00b"),
        *("/v1/sources?after=%00", "/v1/turns/%00", "/v1/notes?after=%00"),
    ],
)
def test_a_nul_character_is_no_failure_of_the_store(client, path):
    assert "NUL" in refused(client.get(path), 400)
