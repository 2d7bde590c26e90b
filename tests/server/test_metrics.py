"""Metrics for Prometheus at /metrics, over real HTTP."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from prometheus_client.parser import text_string_to_metric_families

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.server import Access, create_app
from crabpath_retrievers.server.access import add_token


@contextmanager
def serving(app):
    """A client of the application behind a real server."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def memory(tmp_path):
    """Two pages; what is said about them waits."""
    settings = Settings(learning=LearningSettings(apply="external"))
    vectors = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(tmp_path / "memory", embeddings=vectors, settings=settings) as opened:
        opened.add_documents([Document("One.", id="one"), Document("Two.", id="two")])
        yield opened


def read_samples(client, **headers):
    """The samples that Prometheus would read, by name and labels; and the answer."""
    answer = client.get("/metrics", headers=headers)
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    found = {(one.name, *sorted(one.labels.items())): one.value for one in samples}
    assert len(found) == len(samples)
    return found


def test_prometheus_reads_what_was_asked_and_said(memory):
    """Requests count as other queries do; what waits is looked up at each reading."""
    with serving(create_app(memory)) as client:
        before = read_samples(client)
        asked = client.post("/query", json={"text": "One?"}).json()
        client.post("/feedback", json={"turn_id": asked["turn_id"], "outcome": 1.0})
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
    assert (after["crabpath_waiting",], learned["crabpath_waiting",]) == (1, 0)
    assert learned["crabpath_learned_total",] == before.get(("crabpath_learned_total",), 0) + 1
    assert answer.headers["content-type"].startswith("text/plain")
    assert "ann-the-customer" not in answer.text


def test_applications_of_one_process_count_together(memory):
    """Each shows every metric once, also to several readers at a time."""
    with serving(create_app(memory)) as one, serving(create_app(memory)) as other:
        memory.retrieve("One?")
        before = read_samples(other)["crabpath_queries_total",]
        one.post("/query", json={"text": "One?"})
        with ThreadPoolExecutor(8) as threads:
            read = list(threads.map(lambda _: read_samples(other), range(24)))
    assert {samples["crabpath_queries_total",] for samples in read} == {before + 1}


def test_openmetrics_is_given_where_it_is_asked_for(memory):
    with serving(create_app(memory)) as client:
        answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_metrics_need_the_right_to_read(memory, tmp_path):
    """Where the server has tokens."""
    file = tmp_path / "tokens.json"
    scraper = add_token(file, ["metrics"], ["read"])
    voter = add_token(file, ["metrics"], ["feedback"])
    with serving(create_app(memory, access=Access.from_file(file))) as client:
        statuses = [
            client.get("/metrics", headers=headers).status_code
            for headers in (
                {},
                {"Authorization": f"Bearer {voter}"},
                {"Authorization": f"Bearer {scraper}"},
            )
        ]
    assert statuses == [401, 403, 200]


def test_a_memory_that_cannot_count_leaves_the_rest_readable(memory):
    """What is closed while it is served has no gauge; counters stay."""
    turn = memory.retrieve("One?").turn
    memory.record(Feedback(turn.id, 1.0))
    with serving(create_app(memory)) as client:
        memory.close()
        samples = read_samples(client)
    assert ("crabpath_waiting",) not in samples
    assert samples["crabpath_queries_total",] >= 1
