"""Whom a failure blames: documents for this task that were followed, and those by their record."""

import math

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings, SeedSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import TYPED_KINDS, EdgeKind
from crabpath_retrievers.learning.rules.failure_credit import infer_fault
from crabpath_retrievers.learning.rules.inhibition import find_entry

PAGES = {
    "a": ("Apple", "An Apple is red fruit, unlike Grass or the Blue Sky.", ["exchange", "cancel"]),
    "b": ("Blue Sky", "The Blue Sky stands above the Grass.", "refund"),
    "c": ("Grass", "Grass is green, an Apple is not.", None),
}
EVEN = 0.7 + 0.25 * 0.5
"""What is left of a reward where nothing is known of the region."""


@pytest.fixture
def shop(location):
    """Opens the memory of three pages under a rule, each for tasks of its own, on each database."""
    vectors = DeterministicFakeEmbedding(size=16)
    index = InMemoryVectorStore(vectors)

    def opened(rule="context", **more):
        learning = LearningSettings(reward_decay=rule, inhibition_threshold=1, decay=False, **more)
        settings = Settings(seeds=SeedSettings(max_entries=1), learning=learning)
        return CrabPath.open(location, embeddings=vectors, vectors=index, settings=settings)

    with opened() as memory:
        memory.add_documents(
            [
                Document(text, id=node, metadata={"title": title, "task_type": task})
                for node, (title, text, task) in PAGES.items()
            ]
        )
    return opened


def fail(memory, used, namespace, task="refund", outcome=-1.0):
    """A turn that returned all pages and failed after following some; gives the turn."""
    turn = memory.retrieve(
        "What stands above the Grass?", k=3, namespace=namespace, task_type=task
    ).turn
    assert {item.node for item in turn.returned} == set(PAGES)
    assert memory.record(Feedback(turn.id, outcome, used=used)).status == "applied"
    return turn


def left(memory, namespace):
    """What is left of each reward."""
    keys = memory.store.learned.keys(list(PAGES))
    found = memory.store.learned.usage(
        memory.store.walk.get_clock(namespace).key, list(keys.values())
    )
    return {node: math.exp(-found[key].decay) for node, key in keys.items() if key in found}


def fair(turn, *used, spared=()):
    """What should be left, by the rule of fault, in a region of which nothing is known."""
    fault = infer_fault(turn, Credit(-1.0, 1.0, dict.fromkeys(used, -1.0)))
    kept = {node: EVEN ** fault[node] for node in used if node not in spared}
    return pytest.approx(dict.fromkeys(PAGES, 1.0) | kept)


def weights(memory, namespace):
    """Learned weights by the names of their ends, of what is walked."""
    keys = memory.store.learned.keys(list(PAGES))
    ids = {key: node for node, key in keys.items()}
    known = memory.store.learned.weights(namespace, list(ids))
    return {
        (ids[a], ids.get(b), kind): weight
        for (a, b, kind), weight in known.items()
        if kind not in TYPED_KINDS
    }


def test_documents_for_other_tasks_keep_their_reward(shop):
    """A text or a list of them says so in the metadata; without any it is for all."""
    with shop() as memory:
        turn = fail(memory, list("abc"), "ann")
        assert left(memory, "ann") == fair(turn, *"abc", spared="a")
        turn = fail(memory, list("abc"), "bob", task="cancel")
        assert left(memory, "bob") == fair(turn, *"abc", spared="b")
        turn = fail(memory, list("abc"), "eve", task=None)
        assert left(memory, "eve") == fair(turn, *"abc")


def test_documents_that_were_not_followed_keep_their_reward(shop):
    with shop() as memory:
        fail(memory, ["b"], "ann")
        assert left(memory, "ann") == pytest.approx({"a": 1.0, "b": EVEN, "c": 1.0})
        fail(memory, None, "bob")
        assert set(left(memory, "bob").values()) <= {1.0}


def test_documents_that_often_helped_barely_move(shop):
    """Twenty successes: 2/22 of what would be taken from a new one."""
    with shop() as memory:
        for _ in range(20):
            fail(memory, ["b"], "ann", outcome=1.0)
        turn = fail(memory, ["b", "c"], "ann")
        fault = infer_fault(turn, Credit(-1.0, 1.0, {"b": -1.0, "c": -1.0}))
        found = left(memory, "ann")
        assert found["b"] == pytest.approx(EVEN ** (fault["b"] * 2 / 22))
        assert found["c"] == pytest.approx(EVEN ** fault["c"])
        assert found["b"] > 0.98


def test_failures_add_up(shop):
    with shop() as memory:
        for number in range(1, 3):
            fail(memory, ["c"], "ann")
            assert left(memory, "ann")["c"] == pytest.approx(EVEN**number)


@pytest.mark.parametrize(("rule", "expected"), [("blind", 0.85), ("none", 1.0)])
def test_other_rules(shop, rule, expected):
    """For comparison: 15 percent of all that were returned, or nothing."""
    with shop(rule) as memory:
        fail(memory, ["a"], "ann")
        assert left(memory, "ann") == pytest.approx(dict.fromkeys("abc", expected))
        fail(memory, ["a"], "ann", outcome=1.0)
        assert left(memory, "ann") == pytest.approx(dict.fromkeys("abc", expected))


def test_inhibition_follows_the_share_of_the_blame(shop):
    """None against a document for other tasks; against others as far as they answer for it."""
    share = math.log(EVEN) / math.log(0.7)
    for rule, strength in (("context", share), ("none", 1.0)):
        with shop(rule) as memory:
            turn = fail(memory, list("abc"), rule)
            entries = {item.node: find_entry(turn, item) for item in turn.returned}
            known = weights(memory, rule)
            fault = infer_fault(turn, Credit(-1.0, 1.0, dict.fromkeys("abc", -1.0)))
            for node, entry in entries.items():
                if entry == node:
                    continue
                edge = (entry, node, EdgeKind.INHIBITS)
                if node == "a" and rule == "context":
                    assert edge not in known
                else:
                    blamed = strength * (fault[node] if rule == "context" else 1.0)
                    assert known[edge] == pytest.approx(-0.3 * blamed)
            assert any(entry != node for node, entry in entries.items())


def test_pointers_follow_the_share_of_the_blame(shop):
    moved = {}
    for rule in ("context", "none"):
        with shop(rule) as memory:
            turn = fail(memory, list("abc"), rule, task=None)
            offered = [(s.node, c.target, c.kind) for s in turn.steps for c in s.candidates]
            found = memory.store.history.get_weight_changes(rule, offered, 1)
            moved[rule] = {edge: move.delta for edge, (move,) in found.items()}
    assert moved["context"]
    ratios = [moved["context"][edge] / delta for edge, delta in moved["none"].items() if delta]
    assert all(0 < ratio <= math.log(EVEN) / math.log(0.7) + 1e-9 for ratio in ratios)


def test_a_turn_whose_documents_are_all_for_other_tasks(shop):
    """Is no scalar outcome: no pointer moves and no reward; that they were followed stays known."""
    with shop() as memory:
        fail(memory, ["a", "b"], "ann", task="return")
        assert weights(memory, "ann") == {}
        assert set(left(memory, "ann").values()) == {1.0}
    with shop("none") as memory:
        fail(memory, ["a", "b"], "bob", task="return")
        assert weights(memory, "bob") != {}


def test_undone_the_rewards_are_whole(shop):
    with shop() as memory:
        turns = [fail(memory, used, "ann") for used in (["b"], ["b", "c"], ["c"])]
        for place in (1, 0, 2):
            assert memory.undo(turn_id=turns[place].id).status == "undone"
        assert left(memory, "ann") == {}


def test_a_twin_does_not_notice(shop):
    with shop() as memory:
        before = memory.retrieve("Grass", k=3, namespace="bob", record=False)
        fail(memory, list("abc"), "ann")
        after = memory.retrieve("Grass", k=3, namespace="bob", record=False)
        assert left(memory, "bob") == {}
        assert [i.score for i in after.documents] == [i.score for i in before.documents]
