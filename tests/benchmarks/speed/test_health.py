"""Every part of ``make bench-health`` runs, on a small scale."""

import pytest

from benchmarks.speed import health

pytestmark = pytest.mark.slow


def test_all_figures_are_measured(tmp_path):
    report = health.time_health(tmp_path / "m", nodes=2400, degree=4, learned=100, rounds=1)
    assert (report["nodes"], report["learned_weights"]) == (2400, 100)
    assert 9_500 < report["edges"] <= 9_600  # some lead to themselves
    assert report["first_s"] > 0
    assert report["then_s"]["worst"] > 0
    assert report["values"]["orphan_nodes"] == 0.0
    assert report["values"]["avg_nodes_fired_per_query"] == 8.0
    assert 0.4 < report["values"]["proto_promotion_rate"] < 0.6
    assert 1600 < report["sampled"]["orphan_nodes"] < 2400
