"""Every row of ``make bench`` is measured, on a small scale."""

import pytest

from benchmarks.speed import table
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.datasets.sample import load_sample

pytestmark = pytest.mark.slow


def test_all_figures_are_measured(tmp_path, monkeypatch):
    for name, number in {"_FEEDBACKS": 8, "_MANY_FEEDBACKS": 9, "_INGESTED": 20}.items():
        monkeypatch.setattr(table, name, number)
    data = load_sample()
    queries = dict(list(data.queries.items())[:6])
    small = Dataset("small", data.documents[:60], queries, {q: data.qrels[q] for q in queries})
    lines = list(table.measure_table(small, tmp_path, limit=6, nodes=300))
    rows = [line.split(" | ") for line in lines[2:]]
    figures = {row[0].removeprefix("| "): row[1] for row in rows}
    assert len(figures) == len(rows) == 15
    assert figures["feedback: files / functions"].count(" / ") == 1
    assert 1 <= float(figures["record: SQL executions"]) <= 80
    assert any(name.startswith("301 nodes, ") for name in figures)
    assert all(float(figures[name].split()[0]) > 0 for name in list(figures)[5:])
