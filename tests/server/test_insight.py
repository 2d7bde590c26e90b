"""What a server shows of what was learned: of one namespace, and nothing of another."""

import json

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from served import RIGHTS
from starlette.testclient import TestClient

from crabpath_retrievers import CrabPath, Feedback
from crabpath_server import Access, add_token, create_app
from tests.seams import make_change

LOCAL = "http://127.0.0.1"
VECTORS = DeterministicFakeEmbedding(size=16)
CONFIDED = "Bob's safe opens with 7351"
READS = (
    *("/v1/namespaces", "/v1/learning", "/v1/regions", "/v1/turns", "/v1/notes", "/v1/feedback"),
    *("/v1/graph/neighbors?node=d5", "/v1/graph/neighbors?node=d5&direction=in&kind=taught"),
    *("/v1/graph/changes?source=d5", "/v1/graph/changes?target=d5", "/v1/snapshots"),
    *("/v1/learning/usage", "/v1/learning/usage?order=least"),
)


@pytest.fixture
def memory(location):
    """Pages that mention the next one; Ann and Bob asked, learned and noted different things."""
    pages = [
        Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
        for n in range(120)
    ]
    given = {"embeddings": VECTORS, "vectors": InMemoryVectorStore(VECTORS)}
    with CrabPath.open(location, **given) as opened:
        opened.add_documents(pages, split=False)
        learn(opened, "ann", range(0, 60, 3))
        learn(opened, "bob", range(60, 120, 3))
        opened.teach(CONFIDED, related=["d5"], title=CONFIDED, namespace="bob", id="bobs-note")
        opened.graph.add_edge(
            "d5", "bobs-note", "taught", 0.9, namespace="bob", edge_id="bobs-edge"
        )
        opened.retrieve(CONFIDED, namespace="bob")
        yield opened


def learn(memory, namespace, numbers):
    """Ask about pages, and say what was used; every fourth turn failed."""
    for place, number in enumerate(numbers):
        answer = memory.retrieve(f"What does Page {number} tell?", namespace=namespace)
        used = [document.node.id for document in answer.documents[:2]]
        outcome = -1.0 if place % 4 == 0 else 1.0
        name = f"{namespace}-{place}"
        memory.record(
            Feedback(answer.turn.id, outcome, used=used, feedback_id=name, user=f"{namespace}-user")
        )


@pytest.fixture
def app(memory, tmp_path):
    """A server that knows a token for each, and one for all."""
    file = tmp_path / "tokens.json"
    rights = list(RIGHTS)
    tokens = {name: add_token(file, [name], rights) for name in ("ann", "bob", "*")}
    tokens["reader"] = add_token(file, ["ann"], ["read"])
    served = create_app(memory, access=Access.from_file(file))

    def connect(name: str) -> TestClient:
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        return TestClient(served, base_url=LOCAL, headers=headers)

    return connect


def get(client, path, **options):
    answer = client.get(path, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_turn_with_the_weights_that_its_feedback_moved(app, memory):
    ann, moved = app("ann"), []
    for summary in get(ann, "/v1/turns")["turns"]:
        turn = get(ann, f"/v1/turns/{summary['id']}")
        named = {seed["node"] for seed in turn["turn"]["seeds"]} | set(turn["turn"]["visited"])
        assert named <= turn["titles"].keys()
        assert all(title == f"Page {node[1:]}" for node, title in turn["titles"].items())
        (given,) = turn["feedback"]
        assert given["feedback_id"] == summary["feedback_id"]
        assert {change["feedback_id"] for change in turn["changes"]} <= {given["feedback_id"]}
        assert {change["user"] for change in turn["changes"]} <= {"ann-user"}
        moved += turn["changes"]
        assert [reason["id"] for reason in turn["documents"]] == summary["documents"]
    assert all(change["before"] != change["after"] for change in moved)
    newest = max(moved, key=lambda change: change["at"])
    post(ann, "/v1/undo", feedback_id=newest["feedback_id"])
    feedback = memory.learning.feedback(namespace="ann", limit=1000)
    turn_id = next(f.turn_id for f in feedback if f.feedback_id == newest["feedback_id"])
    undone = get(ann, f"/v1/turns/{turn_id}")
    assert [given["status"] for given in undone["feedback"]] == ["undone"]
    assert undone["changes"] == []


def test_earlier_verdicts_on_questions_like_it(app, memory):
    """With giver, time and credit of documents; not later ones, nor what was undone."""
    ann = app("ann")
    question = "What does Page 3 tell?"
    asked = post(ann, "/v1/query", text=question, k=5)
    shown = get(ann, f"/v1/turns/{asked['turn_id']}")
    assert shown["texts"] == {one["id"]: one["text"] for one in asked["documents"]}
    past = shown["precedents"][0]
    assert (past["query"], past["user"], past["outcome"]) == (question, "ann-user", 1.0)
    assert past["stated"] is True
    assert past["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert max(past["documents"].values()) > 0 > min(past["documents"].values())
    assert not any(one["user"] == "bob-user" for one in shown["precedents"])
    post(ann, "/v1/undo", feedback_id=past["feedback_id"])
    later = post(ann, "/v1/feedback", turn_id=asked["turn_id"], outcome="up")["feedback_id"]
    left = get(ann, f"/v1/turns/{asked['turn_id']}")["precedents"]
    assert not {past["feedback_id"], later} & {one["feedback_id"] for one in left}
    assert memory.learning.precedents(asked["turn_id"])[0].user == "ann-user"


def test_contents_of_a_memory(app):
    """Documents of all, and what the namespace asked and said."""
    counts = get(app("ann"), "/v1/overview")
    assert counts == {"chunks": 120, "sources": 120, "notes": 0, "turns": 20, "feedback": 20}
    bob = get(app("bob"), "/v1/overview")
    assert (bob["notes"], bob["turns"]) == (1, 21)


def test_all_of_one_user_is_undone(app, memory):
    """By an administrator, in the namespace alone; the feedback says which documents it named."""
    ann = app("ann")
    given = get(ann, "/v1/feedback")["feedback"]
    assert all(len(one["used"]) == 2 and one["unused"] is None for one in given)
    assert app("reader").post("/v1/undo/user", json={"user": "ann-user"}).status_code == 403
    undone = post(ann, "/v1/undo/user", user="ann-user")["receipts"]
    assert [one["status"] for one in undone] == ["undone"] * 20
    assert post(ann, "/v1/undo/user", user="bob-user")["receipts"] == []
    left = memory.learning.feedback(namespace="bob", limit=100)
    assert {one.status for one in left if one.turn_id} == {"applied"}


@pytest.mark.slow
@pytest.mark.both_databases
def test_one_namespace_is_told_nothing_of_another(app, memory):
    """Neither texts, ids, names nor users; nor does the number of its edges change an answer."""
    ann, bob = app("ann"), app("bob")
    of_bob = ("bob", CONFIDED)
    for path in READS:
        answer = ann.get(path)
        assert answer.status_code == 200
        assert not [text for text in of_bob if text in answer.text], path
    assert "bobs-note" in bob.get("/v1/graph/neighbors?node=d5").text
    assert CONFIDED in bob.get("/v1/notes").text
    last = get(bob, "/v1/turns")["turns"][0]["id"]
    hidden = [
        f"/v1/turns/{last}",
        "/v1/graph/neighbors?node=bobs-note",
        "/v1/graph/changes?target=bobs-note",
    ]
    for path in hidden:
        assert ann.get(path).status_code == 404
        assert bob.get(path).status_code == 200
    assert get(ann, f"/v1/feedback?turn_id={last}")["feedback"] == []
    fresh = get(app("*"), "/v1/graph/neighbors?node=d5", headers={"CrabPath-Namespace": "new"})
    assert not any(edge["prior"] == 0 for edge in fresh["edges"])
    assert fresh["total"] == len(fresh["edges"])
    refused = ann.get("/v1/learning", headers={"CrabPath-Namespace": "bob"})
    assert refused.status_code == 403
    body = {"source": "d5", "target": "bobs-note", "weight": 0.5}
    assert ann.post("/v1/graph/edges", json=body).status_code == 404
    assert ann.post("/v1/graph/authority", json={"ids": ["bobs-note"]}).status_code == 404
    snapshot = memory.namespaces.snapshot("bob", "monday")
    assert ann.post("/v1/snapshots/restore", json={"snapshot": snapshot}).status_code == 404
    assert [one["name"] for one in get(ann, "/v1/namespaces")["namespaces"]] == ["ann"]
    everyone = get(app("*"), "/v1/namespaces")["namespaces"]
    assert [one["name"] for one in everyone] == ["ann", "bob"]
    assert get(app("*"), "/v1/namespaces?limit=1&after=ann")["namespaces"] == everyone[1:]


def test_learning_over_time(app, memory):
    ann = app("ann")
    report = get(ann, "/v1/learning")
    assert sum(bucket["feedback"] for bucket in report["success"]) == 20
    assert sum(b["outcome"] * b["feedback"] for b in report["success"]) == pytest.approx(10)
    times = [time for b in report["success"] for time in (b["since"], b["until"])]
    assert times == sorted(times)
    health = memory.maintenance.health("ann", record=False)
    assert [m["name"] for m in report["health"]] == [m.name for m in health.metrics]
    assert all(metric["low"] <= metric["high"] for metric in report["health"])
    assert len(report["tiers"]) == 1  # now; nothing was recorded by asking
    assert report["tiers"][0]["turn"] == 20
    memory.maintenance.health("ann")
    assert len(get(ann, "/v1/learning")["tiers"]) == 2
    assert get(ann, "/v1/learning/lift") == {"weeks": [], "shadow": []}
    for number in range(2):
        turn = memory.retrieve(f"Page {number}?", namespace="ann").turn
        memory.record(turn.id, 1.0, relevant=[turn.returned[0].node])
    (row,) = get(ann, "/v1/learning/lift")["weeks"]
    assert (row["labels"], row["turns"], row["low"]) == ("relevant", 2, None)
    assert row["lift"] == pytest.approx(row["learned"] - row["frozen"], abs=2e-4)
    most, least = report["most_useful"], report["least_useful"]
    assert most[0]["usefulness"] > 0.5 >= least[0]["usefulness"]
    assert most[0]["wins"] > 0
    assert most == sorted(most, key=lambda use: -use["usefulness"])
    for order in ("most", "least"):
        used = get(ann, f"/v1/learning/usage?order={order}&limit=3")["documents"]
        known = memory.learning.usage(namespace="ann", least=order == "least", limit=3)
        assert used == [one._asdict() for one in known] != []


def test_connecting_inhibiting_and_anchoring(app):
    ann = app("ann")
    first = post(ann, "/v1/graph/edges", source="d5", target="d99", weight=0.9)
    edges = get(ann, "/v1/graph/neighbors?node=d5&tier=reflex")["edges"]
    assert [(edge["target"], edge["kind"]) for edge in edges] == [("d99", "taught")]
    post(ann, "/v1/graph/edges", source="d5", target="d99", weight=-0.6)
    page = get(ann, "/v1/graph/neighbors?node=d5&tier=inhibitory&min_weight=0.5")
    assert [(edge["kind"], edge["weight"]) for edge in page["edges"]] == [("inhibits", -0.6)]
    changes = get(ann, "/v1/graph/changes?source=d5&target=d99&kind=taught")["changes"]
    assert [(c["before"], c["after"]) for c in changes] == [(0.9, 0.0), (0.0, 0.9)]
    assert changes[-1]["feedback_id"] == first["feedback_id"]
    assert get(app("bob"), "/v1/graph/changes?source=d5&target=d99")["changes"] == []
    assert post(ann, "/v1/graph/authority", ids=["d99"], authority="canonical") == {"nodes": 1}
    assert get(ann, "/v1/graph/neighbors?node=d99")["node"]["authority"] == "canonical"
    for body in ({"source": "d5", "target": "d5", "weight": 0.5}, {"source": "d5"}):
        assert ann.post("/v1/graph/edges", json=body).status_code == 400
    odd = {"source": "d5", "target": "d6", "weight": 0.5, "kind": "link"}
    assert "unknown edge type" in ann.post("/v1/graph/edges", json=odd).text
    for query in ("tier=no", "kind=no", "min_weight=2", "limit=0", "offset=-1"):
        assert ann.get(f"/v1/graph/neighbors?node=d5&{query}").status_code == 400
    post(app("*"), "/v1/namespaces/freeze")
    frozen = app("*").post("/v1/graph/edges", json={**odd, "kind": "taught"})
    assert (frozen.status_code, frozen.json()["receipt"]["reason"]) == (400, "frozen")


def test_the_map_of_regions(app, memory):
    found = get(app("ann"), "/v1/regions")
    assert found["level"] in found["levels"] == list(memory.regions.levels())
    hubs = [region["region"] for region in found["regions"]]
    assert len(hubs) == len(set(hubs)) > 1
    assert sum(region["size"] for region in found["regions"]) == 120
    visited = [region for region in found["regions"] if region["quality"] is not None]
    assert visited
    model = memory.regions.mdp(namespace="ann")
    for region in visited:
        assert region["quality"] == pytest.approx(model.region_quality(region["region"]))
        scores = [score.success for score in model.best_action(region["region"])]
        assert [action["success"] for action in region["actions"]] == pytest.approx(scores)
    assert len({(region["x"], region["y"]) for region in found["regions"]}) == len(hubs)
    assert app("ann").get("/v1/regions?level=60").status_code == 404


def test_a_memory_without_regions_has_an_empty_map():
    with CrabPath.open(embeddings=VECTORS) as small:
        client = TestClient(create_app(small), base_url=LOCAL)
        assert get(client, "/v1/regions") == {"level": None, "levels": [], "regions": []}
        empty = get(client, "/v1/learning")
        assert (empty["success"], empty["most_useful"]) == ([], [])
        assert get(client, "/v1/namespaces") == {"namespaces": []}


@pytest.mark.slow
def test_upkeep_needs_an_administrator_and_does_what_it_says(app, memory):
    ann, reader = app("ann"), app("reader")
    before = memory.info()
    everyone = app("*")
    planned = get(everyone, "/v1/maintenance")
    assert planned["dry_run"] is True
    assert memory.info() == before
    memory.store.apply(
        [make_change("advance_clock", "ann", exponent=9.0)]
    )  # much is learned, and fades
    done = post(everyone, "/v1/maintenance", steps=["fade", "prune"])
    assert [step["step"] for step in done["steps"]] == ["fade", "prune"]
    assert done["run"]
    assert everyone.post("/v1/maintenance", json={"steps": ["no"]}).status_code == 400
    for method in ("GET", "POST"):  # it would count and change what Bob has learned
        refused = ann.request(method, "/v1/maintenance", json={})
        assert refused.status_code == 403
        assert "grants '*'" in refused.text
    kept = post(ann, "/v1/snapshots", name="monday")
    assert get(ann, "/v1/snapshots")["snapshots"] == [kept]
    assert get(app("bob"), "/v1/snapshots")["snapshots"] == []
    post(ann, "/v1/graph/edges", source="d5", target="d99", weight=0.9)
    assert post(ann, "/v1/snapshots/restore", snapshot="monday")["id"] == kept["id"]
    assert get(ann, "/v1/graph/neighbors?node=d5&tier=reflex")["edges"] == []
    assert ann.post("/v1/namespaces/freeze").json() == {"namespace": "ann", "frozen": True}
    edge = {"source": "d5", "target": "d99", "weight": 0.9}
    refused = ann.post("/v1/graph/edges", json=edge)
    assert (refused.status_code, refused.json()["receipt"]["reason"]) == (400, "frozen")
    frozen = {one["name"]: one["frozen"] for one in get(app("*"), "/v1/namespaces")["namespaces"]}
    assert frozen == {"ann": True, "bob": False}
    assert ann.post("/v1/namespaces/unfreeze").json()["frozen"] is False
    for method, path in (
        *(("GET", path) for path in ("/v1/maintenance", "/v1/snapshots")),
        *(("POST", f"/v1/{path}") for path in ("maintenance", "snapshots", "graph/edges")),
        *(("POST", f"/v1/{path}") for path in ("namespaces/freeze", "graph/authority")),
    ):
        answer = reader.request(method, path, content=json.dumps({}))
        assert answer.status_code == 403, path
