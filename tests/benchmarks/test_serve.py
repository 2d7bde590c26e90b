"""What a worker holds after long work, and restarts under load, on a small scale."""

import pytest

from benchmarks.rolling import measure_restarts
from benchmarks.serve_memory import measure_growth

pytestmark = pytest.mark.slow


def test_a_worker_holds_little_more_than_after_a_restart():
    """Less than the whole run, which ``python -m benchmarks serve-memory`` does."""
    lines: list[str] = []
    growth = measure_growth(2000, 600, documents=200, report=lines.append)
    assert growth.ratio < 1.3, lines


def test_no_request_fails_while_workers_are_replaced():
    """Each of two workers once; the whole run is ``python -m benchmarks serve --rolling``."""
    seen = measure_restarts(1, clients=6)
    assert seen.restarts == 2
    assert seen.failed == {}
    assert seen.requests > 50
