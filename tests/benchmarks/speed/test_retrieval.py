"""Every part of ``make bench`` runs, on a small scale."""

import pytest

from benchmarks.speed import retrieval
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.datasets.sample import load_sample


@pytest.mark.slow
def test_all_figures_are_measured(tmp_path):
    """Quality, latency, ingest and size come out of one run over forty passages."""
    data = load_sample()
    queries = dict(list(data.queries.items())[:6])
    small = Dataset("small", data.documents[:60], queries, {q: data.qrels[q] for q in queries})
    report = retrieval.measure_retrieval(small, tmp_path, limit=6, nodes=300)
    assert report["quality"]["crabpath"]["full"] >= report["quality"]["plain_chroma"]["full"]
    assert report["invoke"]["ratio_of_medians"] > 0
    assert report["ingest"]["ratio"] > 0
    assert (report["scale"]["nodes"], report["scale"]["edges"]) == (
        301,
        pytest.approx(3000, rel=0.1),
    )
    assert report["scale"]["graph_side"]["memory_mb"] > 0
