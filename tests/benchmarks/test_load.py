"""Many clients at once, on a small scale."""

import pytest

from benchmarks.load import Load, run_load

pytestmark = pytest.mark.slow


def test_no_call_fails_and_nothing_is_lost():
    """A few seconds of what ``python -m benchmarks load`` does for minutes."""
    figures = run_load(Load(seconds=6, clients=12, processes=2, documents=60))
    assert figures.errors == {}
    assert figures.lost == (0, 0)
    assert all(rate > 0 for rate in (figures.rates["query"], figures.rates["feedback"]))
