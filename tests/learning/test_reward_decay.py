"""Whom a failure blames, over a memory: documents for this task that were followed."""

import math

import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.learning.rules.failure_credit import infer_fault

EVEN = 0.825  # what the worst failure leaves of a reward


@pytest.fixture
def shop(open_pages):
    """The memory of three pages, each page for tasks of its own."""
    with open_pages(inhibition_threshold=1, decay=False) as memory:
        yield memory


def judge(memory, used, namespace, task="refund", outcome=-1.0):
    """A turn that returned all pages and failed after following some; gives the turn."""
    turn = memory.retrieve(
        "What stands above the Grass?", k=3, namespace=namespace, task_type=task
    ).turn
    assert {item.node for item in turn.returned} == set("abc")
    assert memory.record(Feedback(turn.id, outcome, used=used)).status == "applied"
    return turn


def read_rest(memory, namespace):
    """What is left of each reward."""
    keys = memory.store.learned.keys(list("abc"))
    found = memory.store.learned.usage(
        memory.store.walk.get_clock(namespace).key, list(keys.values())
    )
    return {node: math.exp(-found[key].decay) for node, key in keys.items() if key in found}


def expect_rest(turn, *used, spared=()):
    """What should be left, by the rule of fault."""
    fault = infer_fault(turn, Credit(-1.0, 1.0, dict.fromkeys(used, -1.0)))
    kept = {node: EVEN ** fault[node] for node in used if node not in spared}
    return pytest.approx(dict.fromkeys("abc", 1.0) | kept)


def test_who_keeps_a_reward(shop):
    """Who is for other tasks, was not followed, or may not have been; others lose as at fault."""
    # A text or a list in the metadata names the tasks; without any a document is for all.
    for task, spared in (("refund", "a"), ("cancel", "b"), (None, "")):
        turn = judge(shop, list("abc"), f"for {task}", task=task)
        assert read_rest(shop, f"for {task}") == expect_rest(turn, *"abc", spared=spared)
    judge(shop, ["b"], "one")
    assert read_rest(shop, "one") == pytest.approx({"a": 1.0, "b": EVEN, "c": 1.0})
    weights = shop.store.learned.weights("one", list(shop.store.learned.keys("abc").values()))
    share = math.log(EVEN) / math.log(0.7)  # inhibition follows the share of the blame
    inhibited = [w for (*_, kind), w in weights.items() if kind is EdgeKind.INHIBITS]
    assert inhibited == [pytest.approx(-0.3 * share)] * len(inhibited)
    judge(shop, ["a", "b"], "elsewhere", task="return")  # for other tasks, and no bare outcome
    assert set(read_rest(shop, "elsewhere").values()) == {1.0}
    assert shop.store.learned.weights("elsewhere", list(range(9))) == {}
    judge(shop, None, "bare")
    assert set(read_rest(shop, "bare").values()) <= {1.0}
    assert read_rest(shop, "another") == {}


def test_successes_protect(shop):
    """After six of them a failure takes 2/8 of the nats."""
    for _ in range(6):
        judge(shop, ["b"], "bob", outcome=1.0)
    fault = infer_fault(judge(shop, ["b", "c"], "bob"), Credit(-1.0, 1.0, {"b": -1.0, "c": -1.0}))
    found = read_rest(shop, "bob")
    assert found["b"] == pytest.approx(EVEN ** (fault["b"] * 2 / 8))
    assert found["c"] == pytest.approx(EVEN ** fault["c"])
