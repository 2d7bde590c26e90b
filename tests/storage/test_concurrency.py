"""Several writers at once: nothing that one of them wrote is lost, on both databases."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crabpath_retrievers.core.changes import AdjustWeights, RecordTurn, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.storage import GraphStore

STEP = 0.0078125  # 2⁻⁷: sums of it are exact
HOLD = """
import sys
from crabpath_retrievers.storage import GraphStore
with GraphStore(sys.argv[1]).hold_ingest_lock() as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def pair(graph, make) -> tuple[int, int]:
    """Two nodes with a link of prior 0.5 between them, which nobody has touched yet."""
    a, b = graph.publish(make("a"), make("b"))
    graph.join(a, b)
    return a, b


def test_threads_lose_no_delta_and_do_not_lock_each_other_out(store, graph, make, pair):
    """They start together on untouched edges, and change them in opposite orders."""
    (c,) = graph.publish(make("c"))
    graph.join(pair[0], c)
    edges, start = [pair, (pair[0], c)], threading.Barrier(8)

    def adjust(number):
        start.wait()
        for _ in range(5):
            order = edges[:: 1 if number % 2 else -1]
            deltas = tuple(WeightDelta(*edge, EdgeKind.LINK, STEP) for edge in order)
            store.apply([AdjustWeights("default", deltas)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(adjust, range(8)))
    assert [graph.weight(*edge) for edge in edges] == [0.5 + 40 * STEP] * 2


def test_turns_of_many_threads_get_distinct_clocks(store):
    """Turns that are recorded at the same time, in two ways, are numbered without gaps."""
    empty = dict.fromkeys(("seeds", "steps", "visited", "returned", "guardrails"), ())

    def record(number):
        turn = Turn(f"t{number}", "new", clock=0, created=0.0, query="q", novelty={}, **empty)
        if number % 2:
            store.apply([RecordTurn(turn)])
        else:
            store.record(turn)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(48)))
    assert store.catalog.statistics()["turns"] == 48
    assert sorted(store.turns.get(f"t{n}").clock for n in range(48)) == list(range(1, 49))


@pytest.mark.slow
def test_one_process_ingests_at_a_time(location, store):
    """While another process ingests, the right is refused; when that process dies, it is free."""
    command = [sys.executable, "-c", HOLD, str(location)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    with store.hold_ingest_lock(wait=False) as right:
        assert not right
    GraphStore(location).close()  # opening does not wait for the ingest
    other.kill()
    other.communicate()
    with store.hold_ingest_lock() as right:
        assert right


def test_the_thread_that_ingests_may_ask_again_and_others_may_not(store):
    """The right to ingest is re-entrant within its thread and exclusive between threads."""

    def take():
        with store.hold_ingest_lock(wait=False) as right:
            return right

    with ThreadPoolExecutor(1) as pool:
        with store.hold_ingest_lock(), store.hold_ingest_lock() as again:
            assert again
            assert pool.submit(take).result() is False
        assert pool.submit(take).result() is True
