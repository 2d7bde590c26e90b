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
ADJUST = f"""
import sys
from crabpath_retrievers.core.changes import AdjustWeights, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.storage import GraphStore
store = GraphStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    delta = WeightDelta(int(sys.argv[2]), int(sys.argv[3]), EdgeKind.LINK, {STEP})
    store.apply([AdjustWeights("default", (delta,))])
store.close()
"""
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


def child(code: str, *arguments: object) -> subprocess.Popen:
    """A process that runs code and talks through its pipes."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def test_threads_lose_no_delta(store, graph, pair):
    """Eight threads that start together on an untouched edge all count."""
    start = threading.Barrier(8)

    def adjust(_number):
        start.wait()
        for _ in range(5):
            store.apply([AdjustWeights("default", (WeightDelta(*pair, EdgeKind.LINK, STEP),))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(adjust, range(8)))
    assert graph.weight(*pair) == 0.5 + 40 * STEP


def test_opposite_orders_do_not_lock_each_other_out(store, graph, make, pair):
    """Two threads that change the same edges in opposite order both finish."""
    (c,) = graph.publish(make("c"))
    graph.join(pair[0], c)
    edges = [(pair[0], pair[1]), (pair[0], c)]

    def adjust(order):
        for _ in range(20):
            deltas = tuple(WeightDelta(*edge, EdgeKind.LINK, STEP) for edge in order)
            store.apply([AdjustWeights("default", deltas)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(adjust, (edges, edges[::-1])))
    assert [graph.weight(*edge) for edge in edges] == [0.5 + 40 * STEP] * 2


def test_processes_lose_no_delta(location, store, graph, pair):
    """Two processes that adjust one edge at the same time both count."""
    children = [child(ADJUST, location, *pair) for _ in range(2)]
    for process in children:
        assert process.stdout.readline() == "ready\n"
    for process in children:
        process.communicate("go\n", timeout=60)
        assert process.returncode == 0
    assert graph.weight(*pair) == 0.5 + 40 * STEP


def test_turns_of_many_threads_get_distinct_clocks(store):
    """Turns that are recorded at the same time are numbered without gaps."""

    def record(number):
        empty = {"seeds": (), "steps": (), "visited": (), "returned": (), "guardrails": ()}
        fields = {"created": 0.0, "query": "q", "novelty": {}, **empty}
        store.apply([RecordTurn(Turn(id=f"t{number}", namespace="new", clock=0, **fields))])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(24)))
    assert sorted(store.turns.get(f"t{n}").clock for n in range(24)) == list(range(1, 25))


@pytest.mark.slow
def test_one_process_ingests_at_a_time(location, store):
    """While another process ingests, the right is refused; when that process dies, it is free."""
    other = child(HOLD, location)
    assert other.stdout.readline() == "True\n"
    with store.hold_ingest_lock(wait=False) as held:
        assert not held
    GraphStore(location).close()  # opening does not wait for the ingest
    other.kill()
    other.communicate()
    with store.hold_ingest_lock() as held:
        assert held


def test_the_thread_that_ingests_may_ask_again_and_others_may_not(store):
    """The right to ingest is re-entrant within its thread and exclusive between threads."""
    with store.hold_ingest_lock(), store.hold_ingest_lock() as again:
        assert again
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_take, store).result() is False
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(_take, store).result() is True


def _take(store):
    with store.hold_ingest_lock(wait=False) as held:
        return held
