"""Metrics for Prometheus at /metrics, over real HTTP."""

import json
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from prometheus_client.parser import text_string_to_metric_families

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_server import create_app


@pytest.fixture
def memory(tmp_path):
    """Two pages; what is said about them waits."""
    settings = Settings(learning=LearningSettings(apply="external"))
    vectors = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(tmp_path / "memory", embeddings=vectors, settings=settings) as opened:
        opened.add_documents([Document("One.", id="one"), Document("Two.", id="two")])
        yield opened


@pytest.fixture
def connect(serve):
    """Makes clients of an application behind a real server."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(httpx.Client(base_url=serve(app)))


def read_samples(client):
    """The samples that Prometheus would read, by name and labels; each once."""
    answer = client.get("/metrics")
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    found = {
        (one.name, *sorted(label for label in one.labels.items() if label[1])): one.value
        for one in samples
    }
    assert len(found) == len(samples)
    return found


def test_prometheus_reads_what_was_asked_and_said(memory, connect):
    """Requests count as other queries do; what waits is looked up at each reading."""
    client = connect(create_app(memory))
    before = read_samples(client)
    asked = client.post("/v1/query", json={"text": "One?"}).json()
    client.post("/v1/feedback", json={"turn_id": asked["turn_id"], "outcome": 1.0})
    memory.retrieve("Two?", namespace="ann-the-customer")
    after = read_samples(client)
    answer = client.get("/metrics")
    memory.learning.learn_waiting()
    learned = read_samples(client)

    def growth(*key):
        return after.get(key, 0) - before.get(key, 0)

    assert growth("crabpath_queries_total") == 2
    assert growth("crabpath_query_duration_seconds_count") == 2
    assert growth("crabpath_feedback_total", ("crabpath_feedback_status", "waiting")) == 1
    assert growth("crabpath_waiting") == 1
    assert learned["crabpath_waiting",] == before["crabpath_waiting",]
    assert learned["crabpath_learned_total",] == before.get(("crabpath_learned_total",), 0) + 1
    assert answer.headers["content-type"].startswith("text/plain")
    assert "ann-the-customer" not in answer.text


def test_applications_of_one_process_count_together(memory, connect):
    """Each shows every metric once, also to several readers at a time."""
    one, other = connect(create_app(memory)), connect(create_app(memory))
    memory.retrieve("One?")
    before = read_samples(other)["crabpath_queries_total",]
    one.post("/v1/query", json={"text": "One?"})
    with ThreadPoolExecutor(8) as threads:
        read = list(threads.map(lambda _: read_samples(other), range(24)))
    assert {samples["crabpath_queries_total",] for samples in read} == {before + 1}


def test_openmetrics_is_given_where_it_is_asked_for(client):
    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_metrics_need_the_right_to_read(as_bearer):
    """Where the server has tokens."""
    scraper, voter = as_bearer("metrics", rights=["read"]), as_bearer("ann", rights=["feedback"])
    answers = [
        scraper.get("/metrics"),
        voter.get("/metrics"),
        scraper.get("/metrics", headers={"Authorization": ""}),
    ]
    assert [answer.status_code for answer in answers] == [200, 403, 401]


def test_a_memory_that_cannot_count_leaves_the_rest_readable(memory, client):
    """What is closed while it is served counts in no gauge; counters stay."""
    others = read_samples(client)["crabpath_waiting",]
    turn = memory.retrieve("One?").turn
    memory.record(Feedback(turn.id, 1.0))
    assert read_samples(client)["crabpath_waiting",] == others + 1
    memory.close()
    samples = read_samples(client)
    assert samples.get(("crabpath_waiting",), 0) == others
    assert samples["crabpath_queries_total",] >= 1


def test_requests_are_counted_by_route_and_status(memory, connect):
    """By templates: no path that somebody makes up is a label."""
    client = connect(create_app(memory))
    route, status = "http_route", "http_response_status_code"
    before = read_samples(client)
    client.get("/v1/turns/a")
    client.get("/v1/turns/b")
    for path in ("/made/up", "/v1/made/up", "/static/made-up"):
        client.get(path)
    client.request("PURGE", "/v1/turns")
    answer = client.get("/metrics")
    after = read_samples(client)

    def growth(method, where, code):
        labels = (("http_request_method", method), (status, code), (route, where))
        key = ("http_server_request_duration_seconds_count", *labels)
        return after.get(key, 0) - before.get(key, 0)

    assert growth("GET", "/v1/turns/{id}", "404") == 2
    assert growth("GET", "none", "404") == 2
    assert growth("GET", "/static", "404") == 1
    assert growth("_OTHER", "/v1/turns", "405") == 1
    assert "made" not in answer.text.lower()
    assert after["http_server_active_requests",] >= 1


def test_the_embedder_ingests_and_the_lag_of_learning_are_measured(memory, connect):
    client = connect(create_app(memory))
    before = read_samples(client)
    turn = memory.retrieve("One?").turn
    memory.record(Feedback(turn.id, 1.0))
    memory.add_documents([Document("Three.", id="three")])
    memory.forget("three")
    after = read_samples(client)

    def growth(*key):
        return after.get(key, 0) - before.get(key, 0)

    kind = "crabpath_embedding_kind"
    assert growth("crabpath_embedding_duration_seconds_count", (kind, "query")) == 1
    assert growth("crabpath_embedding_duration_seconds_count", (kind, "documents")) == 1
    assert growth("crabpath_ingested_total", ("crabpath_ingest_change", "added")) == 1
    assert after["crabpath_learning_lag_seconds",] > 0
    memory.learning.learn_waiting()
    assert read_samples(client)["crabpath_learning_lag_seconds",] == 0


class FailingEmbeddings(DeterministicFakeEmbedding):
    """Fails for the word "fail"."""

    def embed_query(self, text):
        """Embed, unless the text asks for a failure."""
        if "fail" in text:
            msg = "the model is away"
            raise ConnectionError(msg)
        return super().embed_query(text)


def list_queries():
    """Every expression of the dashboard and of the alerts."""
    folder = Path(__file__).parents[2] / "examples" / "deploy" / "monitoring"
    board = json.loads((folder / "dashboard.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((folder / "alerts.yaml").read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])


def test_dashboard_and_alerts_ask_for_what_a_server_measures(tmp_path, connect):
    """Each metric of an expression is at /metrics, with the labels that the expression names."""
    embeddings = FailingEmbeddings(size=16)
    with CrabPath.open(tmp_path / "memory", embeddings=embeddings) as memory:
        client = connect(create_app(memory))
        memory.add_documents([Document(f"Page {n}", id=str(n)) for n in range(8)])
        right = memory.retrieve("Page 1?").documents[-1].node.id
        for _ in range(3):
            asked = client.post("/v1/query", json={"text": "Page 1?"}).json()
            said = {"turn_id": asked["turn_id"], "outcome": 1.0, "relevant": [right]}
            assert client.post("/v1/feedback", json=said).status_code == 200
        assert client.post("/v1/query", json={"text": "fail"}).status_code >= 500
        known = defaultdict(set)
        for name, *labels in read_samples(client):
            known[name] |= {"le", "instance"} | {label for label, _ in labels}
    asked = list(list_queries())
    assert len(asked) > 15
    for query in asked:
        names = set(re.findall(r"\b(?:crabpath|http_server)_\w+(?=[\s{\[)])", query))
        names -= {
            name for name in names if name.endswith(("_kind", "_status", "_change", "_result"))
        }
        assert names or query.startswith("up{"), query
        for name in names:
            assert name in known, query
        wanted = set(re.findall(r"(\w+)=~?\"|(\w+)!=\"", query))
        labels = {label for pair in wanted for label in pair if label} - {"job"}
        for group in re.findall(r"by \(([\w, ]+)\)", query):
            labels |= {label.strip() for label in group.split(",")}
        assert labels <= set().union(*(known[name] for name in names)), query
