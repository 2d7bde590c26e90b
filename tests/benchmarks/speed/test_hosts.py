"""Every part of ``make bench-hosts`` runs, on a small scale."""

import pytest

from benchmarks.speed.hosts import measure_hosts
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.datasets.sample import load_sample

pytestmark = pytest.mark.slow


def test_all_figures_are_measured():
    data = load_sample()
    queries = dict(list(data.queries.items())[:6])
    small = Dataset("small", data.documents[:60], queries, {q: data.qrels[q] for q in queries})
    found = measure_hosts(small, rounds=6, at_once=10, one_by_one=4)
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
