"""What an adapter costs over the call of the library: a coarse bound."""

import pytest

from benchmarks.speed.hosts import host_calls, time_overhead

pytestmark = pytest.mark.slow

ROUNDS = 9
MOST = 1.0  # milliseconds


@pytest.mark.parametrize("host", ["LangGraph node in a graph", "LlamaIndex retriever"])
def test_at_most_one_millisecond(retriever, question, host):
    """At the median of interleaved calls; ``make bench-hosts`` shows it."""
    own, library = host_calls(retriever)[host]
    # A busy machine only adds to a difference: the least one is nearest to what it costs.
    found = (time_overhead(own, library, [question], rounds=40) for _ in range(ROUNDS))
    assert any(overhead["difference_p50"] <= MOST for overhead in found)
