"""What judged turns count in regions; whom failures blame, and what they take of rewards."""

import math
from dataclasses import replace

import pytest

from crabpath_retrievers import EdgeKind, Feedback
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import SEARCH_ACTION
from crabpath_retrievers.learning.rules import (
    count_turn_steps,
    get_action_type,
    infer_fault,
)
from crabpath_retrievers.learning.standalone import StandaloneLearner

PLACES = ((0, 0), (1, 7))
REGIONS = {"a": {1: 7}, "b": {1: 8}}
FOUND, LINKED = (1, 7, "", SEARCH_ACTION, 7), (1, 7, "", "link", 8)


@pytest.fixture(scope="session")
def asked(turn_of):
    """A turn that found a by search and b by a link."""
    made = turn_of(returned=[["a"], ["a", "b"]])
    one, two = made.returned
    return replace(made, returned=(one, replace(two, support=two.path[-1])))


def count(turn, credit, regions=None):
    """Counts by place; what came by has no action."""
    found = count_turn_steps(turn, credit, PLACES, REGIONS if regions is None else regions)
    assert len({step.place for step in found}) == len(found)
    return {step.place: step.counts for step in found}


def test_used_and_unused(asked):
    """Used is a success of its step, not used a failure; all end the turn."""
    assert [get_action_type(item) for item in asked.returned] == [SEARCH_ACTION, "link"]
    assert count(asked, Credit(1.0, 0.5, {"a": 1.0, "b": 0.0})) == {
        (0, 0, "", "", 0): (0.5, 0.5, 0.0, 0.0),
        (1, 7, "", "", 0): (0.5, 0.5, 0.0, 0.0),
        (0, 0, "", SEARCH_ACTION, 0): (0.5, 0.5, 0.5, 0.5),
        FOUND: (0.5, 0.5, 0.5, 0.5),
        (0, 0, "", "link", 0): (0.5, 0.0, 0.5, 0.0),
        LINKED: (0.5, 0.0, 0.5, 0.0),
    }


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        # Blamed is as unused, also where the turn failed by half only.
        (
            Credit(-0.5, 1.0, {"a": -0.5, "b": 0.0}),
            {FOUND: (1, 0, 1, 0), LINKED: (1, 0, 1, 0), (1, 7, "", "", 0): (1, 0.25, 0, 0)},
        ),
        # What an answer does not show is not counted: it may have been used all the same.
        (
            Credit(1.0, 1.0, {"a": 0.8, "b": 0.0}, frozenset("ab")),
            {FOUND: (1, 0.8, 1, 0.8), LINKED: None},
        ),
        # Documents of which nothing is known are not counted, where something is known of others.
        (Credit(1.0, 1.0, {"b": 1.0}), {FOUND: None, LINKED: (1, 1, 1, 1)}),
        # A bare outcome is shared: the documents are one step together.
        *[
            (Credit(z), dict.fromkeys((FOUND, LINKED), (0.5, won / 2, 0.5, won / 2)))
            for z, won in ((1.0, 1.0), (0.0, 0.5), (-1.0, 0.0))
        ],
    ],
)
def test_what_credit_counts(asked, credit, expected):
    found = count(asked, credit)
    assert {place: found.get(place) for place in expected} == expected


def read_steps(memory, namespace):
    """All counts of level 1 and of all together."""
    return {one.place: one.counts for one in memory.store.regions.get_all_transitions(namespace, 1)}


def ask(memory, namespace, number=5, **options):
    """A turn about a page; recorded before it is returned."""
    turn = memory.retrieve(f"Page {number}", namespace=namespace, k=3, **options).turn
    memory.store.flush()
    return turn


OUTCOMES = [
    {"outcome": 1.0, "used": [0]},
    {"outcome": 1.0, "used": [0], "unused": [1]},
    {"outcome": -1.0, "used": [1]},
    {"outcome": 0.5, "answer": "Text 5 tells of Page 6."},
]


def make_feedback(turn, given):
    """Feedback about a turn, whose documents are named by their places."""
    known = {
        name: [turn.returned[place].node for place in value]
        if name in {"used", "unused"}
        else value
        for name, value in given.items()
    }
    return Feedback(turn.id, **known)


@pytest.mark.parametrize("given", OUTCOMES[:4])
def test_another_process_counts_the_same(atlas, namespace, given):
    """``crabpath learn`` has the store alone."""
    other = f"{namespace} outside"
    for learning, learner in ((namespace, atlas), (other, StandaloneLearner(atlas.store))):
        for number in (5, 77):
            turn = ask(atlas, learning, number, task_type="refund")
            assert learner.record(make_feedback(turn, given)).status == "applied"
    found = read_steps(atlas, namespace)
    (region,) = (
        hub.key for hub in atlas.store.regions.hubs(1) if hub.id == atlas.regions.assign("Page 5")
    )
    for task in ("", "refund"):  # where its question lies, and in the whole corpus
        assert found[1, region, task, "", 0][0] >= 1.0
        assert found[0, 0, task, "", 0][0] == 2.0
    assert read_steps(atlas, other) == read_steps(atlas, namespace)


def test_a_lost_reward_reaches_the_ranking(atlas, namespace):
    """As a feature, by what is gone of it; other namespaces do not notice."""
    turn = ask(atlas, namespace)
    node = turn.returned[0].node
    atlas.record(make_feedback(turn, {"outcome": -1.0, "used": [0]}))
    (key,) = atlas.store.learned.keys([node]).values()
    used = atlas.store.learned.usage(atlas.store.walk.get_clock(namespace).key, [key])
    gone = 1 - math.exp(-used[key].decay)  # of the nats that failures have taken
    assert 0.05 < gone < 0.3

    def find(namespace):
        answer = atlas.retrieve("Page 5", namespace=namespace, k=50, record=False)
        return next(item for item in answer.turn.returned if item.node == node)

    assert find(namespace).features["decayed"] == pytest.approx(gone, abs=1e-4)
    fresh = find(f"{namespace} fresh")
    assert fresh.features.get("decayed", 0.0) == 0.0
    assert find(namespace).probability < fresh.probability


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
