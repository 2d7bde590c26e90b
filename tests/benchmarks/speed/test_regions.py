"""Every part of ``make bench-regions`` runs, on a small scale."""

import pytest

from benchmarks.speed import regions
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.datasets.sample import load_sample

pytestmark = pytest.mark.slow


def test_all_figures_are_measured(tmp_path):
    """What regions add, with and without them, and how counts grow."""
    data = load_sample()
    queries = dict(list(data.queries.items())[:4])
    small = Dataset("small", data.documents[:60], queries, {q: data.qrels[q] for q in queries})
    report = regions.measure_regions(small, tmp_path, limit=4, nodes=300, turns=10)
    assert report["nodes"] == 301
    assert report["levels"]
    assert report["added_ms"]["all"]["p50"] > 0
    assert report["retrieve_ms"]["processor"]["ratio_of_medians"] > 0
    assert [point["turns"] for point in report["growth"]] == [2, 4, 6, 8, 10]
    rows = [point["rows"] for point in report["growth"]]
    assert rows == sorted(rows)
    assert rows[0] > 0
