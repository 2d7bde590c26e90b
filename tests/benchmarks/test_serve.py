"""What a worker holds after long work, and restarts under load, on a small scale."""

import pytest

from benchmarks.rolling import measure_restarts
from benchmarks.serve import ServeLoad
from benchmarks.serve_memory import measure_growth
from benchmarks.soak.figures import Skipped

pytestmark = pytest.mark.slow


def test_a_worker_holds_little_more_than_after_a_restart():
    """Less than the whole run, which ``python -m benchmarks serve-memory`` does."""
    lines: list[str] = []
    growth = measure_growth(1500, 400, documents=200, report=lines.append)
    assert growth.ratio < 1.3, lines


@pytest.mark.timeout(900)  # the programs start slowly beside others
def test_no_request_fails_while_workers_are_replaced():
    """Nothing fails or is lost; the whole run is ``python -m benchmarks serve --rolling``."""
    try:
        seen = measure_restarts(ServeLoad(4, clients=8, documents=200))
    except Skipped as why:
        pytest.skip(str(why))
    assert (seen.errors, seen.wrong, seen.lost) == ({}, 0, {})
    assert seen.requests.keys() == {"query", "feedback", "teach", "documents"}
