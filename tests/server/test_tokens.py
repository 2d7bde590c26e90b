"""Bounds of tokens: who gave what is kept, how much they may send, and what needs ``teach``."""

import pytest
from starlette.testclient import TestClient

from crabpath_server import Access, Limits, create_app, create_token

LOCAL = "http://127.0.0.1"
OTHERS = ("read", "feedback", "write", "admin")


@pytest.fixture
def bear(memory, token_file):
    """Makes clients of one server, each with a token of its own, whose id is ``client.token``."""
    create_token(token_file, ["nobody"], ["read"])
    access = Access.from_file(token_file, check_seconds=0)
    app = create_app(memory, access=access, limits=Limits(requests_per_minute=50))

    def make(*rights, namespaces=("ann",), **options) -> TestClient:
        made = create_token(token_file, list(namespaces), list(rights), **options)
        client = TestClient(app, base_url=LOCAL)
        client.headers["Authorization"] = f"Bearer {made.secret}"
        client.token = made.id
        return client

    return make


def ask(client, text="Where is the sky?", **options):
    """The turn, and the ids that it returned."""
    answer = client.post("/v1/query", json={"text": text, **options}).json()
    return answer["turn_id"], [document["id"] for document in answer["documents"]]


def post(client, path, **body):
    response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def refuse(client, path, **body):
    """The sentence with which a token without the right is refused."""
    response = client.post(f"/v1/{path}", json=body)
    assert response.status_code == 403, response.text
    return response.json()["detail"]


def test_all_that_a_token_changed_is_known_by_it(memory, bear):
    ann, eve = bear(*OTHERS, "teach", user="ann"), bear(*OTHERS, "teach")
    turn, documents = ask(ann)
    first = post(ann, "feedback", turn_id=turn, outcome=1, used=documents[:1])
    turn, _ = ask(eve, "Who runs the pipeline?")
    post(eve, "feedback", turn_id=turn, outcome=-1, correction="Petra runs it.")
    post(ann, "teach", text="Pears are green.")
    post(eve, "correct", text="It is red.", turn_id=turn, wrong=["sky"])
    assert eve.delete("/v1/documents/deploy").status_code == 200
    listed = ann.get("/v1/feedback").json()["feedback"]
    assert [(one["token"], one["user"]) for one in listed] == [
        (eve.token, f"token {eve.token}"),
        (ann.token, "ann"),
    ]
    notes = {one["text"]: one["token"] for one in ann.get("/v1/notes").json()["notes"]}
    assert notes == {
        "Petra runs it.": eve.token,
        "It is red.": eve.token,
        "Pears are green.": ann.token,
    }
    root = bear("admin", namespaces=["*"])
    changes = root.get("/v1/audit").json()["changes"]
    assert [one["token"] for one in changes if one["change"] == "remove"] == [eve.token]
    assert {one["token"] for one in changes if one["change"] == "note"} == {ann.token, eve.token}
    page = root.get("/v1/audit", params={"before": changes[0]["number"], "limit": 1}).json()
    assert page["changes"] == changes[1:2]
    assert bear("admin").get("/v1/audit").status_code == 403
    undone = memory.learning.undo_all(token=ann.token)
    assert undone[0].feedback_id == first["feedback_id"]
    assert [note.text for note in memory.notes(namespace="ann")] == [
        "It is red.",
        "Petra runs it.",
    ]
    receipts = post(ann, "undo/user", token=eve.token)["receipts"]
    assert [one["status"] for one in receipts] == ["undone", "undone"]
    assert memory.notes(namespace="ann") == []
    assert post(ann, "undo/user", token=eve.token)["receipts"] == []


def test_texts_of_notes_of_a_token_are_deleted(memory, bear):
    """Also from snapshots; those of others stay, and what feedback says, too."""
    ann, eve = bear(*OTHERS, "teach"), bear(*OTHERS, "teach")
    post(ann, "teach", text="Pears are green.")
    for text in ("The sky is eve's.", "It is red."):
        post(eve, "teach", text=text)
    turn, _ = ask(ann)
    post(eve, "correct", text="It is grey.", turn_id=turn)
    post(ann, "feedback", turn_id=turn, outcome=-1, correction="It is grey.")
    memory.namespaces.snapshot("ann", name="before")
    assert post(ann, "feedback/forget", token=eve.token) == {"feedback": 3}
    kept = [(one.text, one.token) for one in memory.notes(namespace="ann")]
    assert kept == [("It is grey.", ann.token), ("Pears are green.", ann.token)]
    memory.namespaces.restore("before", namespace="ann")
    assert len(memory.notes(namespace="ann")) == 2


def test_what_no_token_gave_names_none(memory):
    turn = memory.retrieve("Where is the sky?").turn.id
    memory.record(turn, outcome=True)
    memory.teach("Pears are green.")
    assert [one.token for one in memory.learning.feedback()] == [None]
    assert [one.token for one in memory.notes()] == [None]


@pytest.mark.parametrize("field", ["relevant", "irrelevant"])
def test_labels_of_what_was_not_returned_need_the_right_to_teach(memory, bear, field):
    """By id, document or source; with a turn, or about the last one."""
    ann, teacher = bear(*OTHERS), bear(*OTHERS, "teach")
    turn, (returned,) = ask(ann, k=1)
    strange = next(page for page in ("deploy", "pipeline", "sky") if page != returned)
    given = {"outcome": 1, field: [returned, strange]}
    for about in ({"turn_id": turn}, {}):
        sentence = refuse(ann, "feedback", **given, **about)
        assert f"{field} with {strange!r}, which the turn did not return" in sentence
    assert memory.learning.feedback(namespace="ann") == []
    assert post(ann, "feedback", outcome=1, **{field: [returned]})["turn_id"] == turn
    assert post(teacher, "feedback", **given, user="teacher")["status"] == "applied"


def test_corrections_beyond_an_answer_need_the_right_to_teach(bear):
    ann, teacher = bear(*OTHERS), bear(*OTHERS, "teach")
    turn, (returned,) = ask(ann, k=1)
    strange = next(page for page in ("deploy", "pipeline", "sky") if page != returned)
    for more, why in (
        ({"wrong": [strange]}, "wrong with"),
        ({"related": [strange]}, "related with"),
        ({"query": "Any question"}, "query of a correction"),
        ({"id": "preferences"}, "id of a correction"),
        ({"authority": "constitutional"}, "authority 'constitutional'"),
    ):
        assert why in refuse(ann, "correct", text="Trust me.", turn_id=turn, **more)
        post(teacher, "correct", text="Trust me.", turn_id=turn, **more)
    assert post(ann, "correct", text="It is red.", turn_id=turn, wrong=[returned])["id"]
    assert "'teach'" in refuse(ann, "teach", text="Trust me.")
    assert "'teach'" in refuse(ann, "graph/authority", ids=["sky"])
    assert post(ann, "graph/authority", ids=["sky"], authority="overlay") == {"nodes": 1}


def test_a_teacher_and_a_turn_of_chosen_documents_need_the_right_to_teach(bear):
    ann = bear(*OTHERS)
    turn, _ = ask(ann)
    assert "source 'teacher'" in refuse(ann, "feedback", turn_id=turn, outcome=1, source="teacher")
    chosen = {"text": "Where is the sky?", "candidate_ids": ["deploy"]}
    assert "candidate_ids with record" in refuse(ann, "query", **chosen)
    assert post(ann, "query", **chosen, record=False)["documents"]


def test_a_token_takes_back_what_it_said_itself(memory, bear):
    """Nor does it change what another one said; the right ``admin`` undoes all."""
    ann, eve = bear("read", "feedback"), bear("read", "feedback")
    turn, _ = ask(ann)
    said = {"turn_id": turn, "outcome": 1, "feedback_id": "order-1", "user": "ann"}
    post(ann, "feedback", **said)
    for about in ({"feedback_id": "order-1"}, {"turn_id": turn}):
        assert "what others said" in refuse(eve, "undo", **about)
    assert "of another token" in refuse(eve, "feedback", **{**said, "outcome": -1})
    (record,) = memory.learning.feedback(namespace="ann")
    assert (record.status, record.outcome, record.token) == ("applied", 1, ann.token)
    note = post(ann, "correct", text="It is red.", turn_id=turn)["id"]
    for about in ({"feedback_id": note}, {"turn_id": turn}):
        assert "what others said" in refuse(eve, "undo", **about)
    mine = post(eve, "correct", text="It is grey.", turn_id=turn)["id"]
    assert "what others said" in refuse(ann, "undo", turn_id=turn)
    assert post(eve, "undo", feedback_id=mine)["feedback_id"] == mine
    assert {one.id for one in memory.notes(namespace="ann")} == {note}
    assert repr(note) in post(ann, "undo", turn_id=turn)["note"]
    assert memory.notes(namespace="ann") == []
    assert ann.post("/v1/undo", json={"turn_id": turn}).status_code == 404
    post(ann, "feedback", **{**said, "outcome": -1})
    assert post(bear("feedback", "admin"), "undo", feedback_id="order-1")["status"] == "undone"
    alone = memory.correct("It is red.", turn_id=turn, namespace="ann")
    assert "what others said" in refuse(ann, "undo", feedback_id=alone)  # no token gave it


def test_a_token_speaks_for_its_user(bear):
    ann = bear("read", "feedback", user="ann")
    turn, _ = ask(ann)
    assert "'ann' only" in refuse(ann, "feedback", turn_id=turn, outcome=1, user="the-ceo")
    post(ann, "feedback", turn_id=turn, outcome=1)
    assert [one["user"] for one in ann.get("/v1/feedback").json()["feedback"]] == ["ann"]


def test_a_token_may_send_so_much(bear):
    """Each by itself, and probes are not counted."""
    ann, bob, eve = bear("read", requests_per_minute=3), bear("read"), bear("read")
    answers = [ann.get("/v1/session") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert 15 <= int(answers[-1].headers["retry-after"]) <= 21
    assert "3 requests a minute" in answers[-1].json()["detail"]
    assert ann.get("/health").status_code == 200
    assert ann.get("/ready").status_code in (200, 503)
    assert [bob.get("/v1/session").status_code for _ in range(51)] == [200] * 50 + [429]
    assert eve.get("/v1/session").status_code == 200
    body = {"questions": [{"text": "sky"}] * 30}
    answers = [eve.post("/v1/query/batch", json=body).status_code for _ in range(2)]
    assert answers == [200, 429]  # a batch counts as many as it has questions
    few, body = bear("read", requests_per_minute=3), {"questions": [{"text": "sky"}] * 4}
    never = few.post("/v1/query/batch", json=body)
    assert (never.status_code, "retry-after" in never.headers) == (400, False)


def test_a_token_may_teach_so_much(bear):
    """Feedback, corrections, notes and undos count together, over REST and MCP."""
    ann, none = bear(*OTHERS, "teach", feedbacks_per_hour=2), bear("teach", feedbacks_per_hour=0)
    post(ann, "teach", text="Pears are green.")
    call = {"name": "teach", "arguments": {"text": "Plums are blue."}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    accept = {"Accept": "application/json, text/event-stream"}
    for is_error in (False, True):
        result = ann.post("/mcp", json=body, headers=accept).json()["result"]
        assert bool(result.get("isError")) == is_error
    assert "2 feedbacks an hour" in result["content"][0]["text"]
    turn, _ = ask(ann)
    for path, given in (("feedback", {"outcome": 1}), ("undo", {}), ("correct", {"text": "No."})):
        answer = ann.post(f"/v1/{path}", json={"turn_id": turn, **given})
        assert answer.status_code == 429, path
    assert ann.get("/v1/notes").json()["notes"]  # reading goes on
    assert none.post("/v1/teach", json={"text": "x"}).status_code == 429


def test_patterns_show_the_namespaces_that_they_match(memory, bear):
    for name in ("blue", "team-a", "team-b", "team-c", "zoe"):
        memory.teach("Pears are green.", namespace=name)
    team = bear("read", namespaces=["zoe", "team-*"])
    listed = [
        [one["name"] for one in team.get("/v1/namespaces", params=page).json()["namespaces"]]
        for page in ({}, {"limit": 2}, {"after": "team-b"})
    ]
    assert listed == [
        ["team-a", "team-b", "team-c", "zoe"],
        ["team-a", "team-b"],
        ["team-c", "zoe"],
    ]
    for name, status in (("team-z", 200), ("blue", 403)):
        headers = {"CrabPath-Namespace": name}
        assert team.get("/v1/turns", headers=headers).status_code == status
