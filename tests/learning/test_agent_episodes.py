"""Users' own episodes: what is counted of them, once, and how it goes away again."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.core.changes import AdjustWeights, WeightDelta
from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.text import prepend_title


def counts(memory, namespace):
    """Steps of level 1 as (region, action, task, next) to (trials, wins, ends, end_wins)."""
    named = {hub.key: hub.id for hub in memory.store.regions.hubs(1)}
    return {
        (named[one.region], one.action, one.task, named.get(one.next)): one.counts
        for one in memory.store.regions.get_all_transitions(namespace, 1)
        if one.level
    }


def rows(memory):
    """How many rows every table has."""
    with memory.store.open_reader() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table))
            for table in s.metadata.sorted_tables
        }


@pytest.fixture
def hubs(atlas):
    """Ids of the hubs of level 1; each lies in its own region."""
    return atlas._services.regions.hubs(1).ids


def test_an_episode_by_hand(atlas, namespace, hubs):
    """Two actions, then the end in a third region; what came by is counted apart."""
    a, b, c = hubs[:3]
    atlas.regions.learn_episode(
        [a, b, c], ["find", "take"], 0.5, task_type="keep", namespace=namespace
    )
    known = counts(atlas, namespace)
    for task in ("", "keep"):
        assert known.pop((a, "find", task, b)) == (1.0, 0.75, 0.0, 0.0)
        assert known.pop((b, "take", task, c)) == (1.0, 0.75, 1.0, 0.75)
        for region in (a, b, c):
            assert known.pop((region, "", task, None)) == (1.0, 0.75, 0.0, 0.0)
    assert known == {}
    everywhere = [
        one for one in atlas.store.regions.get_all_transitions(namespace, 1) if not one.level
    ]
    assert set(everywhere) == {
        TransitionCount(0, 0, task, action, 0, 1.0, 0.75, *ends)
        for task in ("", "keep")
        for action, ends in (("", (0.0, 0.0)), ("find", (0.0, 0.0)), ("take", (1.0, 0.75)))
    }


def test_as_many_actions_as_states(atlas, namespace, hubs):
    a, b = hubs[:2]
    atlas.regions.learn_episode([a, b], ["find", "take"], -1.0, namespace=namespace)
    known = counts(atlas, namespace)
    assert known[b, "take", "", None] == (1.0, 0.0, 1.0, 0.0)
    assert known[a, "find", "", b] == (1.0, 0.0, 0.0, 0.0)
    assert {task for _, _, task, _ in known} == {""}


def test_ids_vectors_and_texts_are_the_same_states(atlas, namespace):
    ids = ["d3", "d77"]
    stored = atlas.store.catalog.vectors(ids)
    texts = [prepend_title(f"Page {n}", f"Text {n} tells of Page {n + 1}.") for n in (3, 77)]
    forms = {
        "ids": {"states": ids},
        "lists": {"states": [stored[node].tolist() for node in ids]},
        "matrix": {"states": np.stack([stored[node] for node in ids])},
        "mixed": {"states": ["d3", stored["d77"] * 5]},
        "texts": {"texts": texts},
    }
    for name, form in forms.items():
        actions = ["find", "take"]
        atlas.regions.learn_episode(
            **form, actions=actions, reward=1.0, namespace=f"{namespace} {name}"
        )
    found = [counts(atlas, f"{namespace} {name}") for name in forms]
    assert found == [found[0]] * len(forms)
    assert {region for region, *_ in found[0]} == {atlas.regions.assignments()[n] for n in ids}


def test_one_state_and_one_action(atlas, namespace, hubs):
    atlas.regions.learn_episode(hubs[0], "find", 1.0, namespace=namespace)
    atlas.regions.learn_episode(texts="Text 5", actions="find", reward=1.0, namespace=namespace)
    assert {action for _, action, *_ in counts(atlas, namespace)} == {"", "find"}


def test_the_type_of_an_action_is_what_classify_says(atlas, namespace, hubs):
    calls = [{"name": "find", "id": 1}, {"name": "take", "id": 2}]
    atlas.regions.learn_episode(
        hubs[:2], calls, 1.0, namespace=namespace, classify=lambda call: call["name"].upper()
    )
    assert {action for _, action, *_ in counts(atlas, namespace)} == {"", "FIND", "TAKE"}


def test_default_actions(open_regions):
    """The kind of the pointer between two documents, else the type of the next, else "read"."""
    memory = open_regions
    store, found = memory.store, lambda: {a for _, a, *_ in counts(memory, "ann")} - {""}
    memory.regions.learn_episode(["f0", "typed"], reward=1.0, namespace="ann")
    assert found() == {"question"}
    memory.regions.learn_episode(["f0", "f1"], reward=1.0, namespace="ann")
    assert found() == {"question", "read"}
    (a,), (b,) = (store.learned.keys([node]).values() for node in ("f0", "f1"))
    store.apply([AdjustWeights("ann", (WeightDelta(a, b, EdgeKind.INHIBITS, -0.5),), "x")])
    memory.regions.learn_episode(["f0", "f1"], reward=1.0, namespace="ann")
    assert found() == {"question", "read"}, "nobody follows what advises against its target"
    store.apply([AdjustWeights("ann", (WeightDelta(a, b, EdgeKind.CO_USED, 0.5),), "x")])
    memory.regions.learn_episode(["f0", "f1"], reward=1.0, namespace="ann")
    memory.regions.learn_episode(["m0", "m1"], reward=1.0, namespace="ann")
    assert found() == {"question", "read", "co_used", "mention"}


def test_the_same_id_again_changes_nothing(atlas, namespace, hubs):
    given = {"namespace": namespace, "episode_id": f"e {namespace}"}
    assert atlas.regions.learn_episode(hubs[:1], ["find"], 1.0, **given).status == "applied"
    before = counts(atlas, namespace)
    assert atlas.regions.learn_episode(hubs[:1], ["throw"], -1.0, **given).status == "applied"
    assert counts(atlas, namespace) == before
    atlas.undo(f"e {namespace}")
    assert atlas.regions.learn_episode(hubs[:1], ["find"], 1.0, **given).status == "undone"
    assert counts(atlas, namespace) == {}


def test_one_id_from_eight_threads(atlas, namespace, hubs):
    with ThreadPoolExecutor(8) as pool:
        given = {"namespace": namespace, "episode_id": f"e {namespace}"}
        receipts = list(
            pool.map(
                lambda _: atlas.regions.learn_episode(hubs[:1], ["find"], 1.0, **given), range(8)
            )
        )
    assert {receipt.status for receipt in receipts} == {"applied"}
    assert counts(atlas, namespace)[hubs[0], "find", "", None][0] == 1.0


def test_many_threads_lose_nothing(atlas, namespace, hubs):
    def one(number):
        reward = 1.0 if number % 2 else -1.0
        return atlas.regions.learn_episode(hubs[:2], ["find", "take"], reward, namespace=namespace)

    with ThreadPoolExecutor(4) as pool:
        assert {r.status for r in pool.map(one, range(24))} == {"applied"}
    assert counts(atlas, namespace)[hubs[0], "find", "", hubs[1]] == (24.0, 12.0, 0.0, 0.0)
    assert atlas.store.walk.get_clock(namespace).learned == 24


def test_undone_in_any_order_nothing_is_left(atlas, namespace, hubs):
    ids = []
    for number, (actions, reward) in enumerate(
        [(["find", "take"], 0.3), (["find"], -0.7), (["throw"], 1.0), (["find", "take"], 0.1)]
    ):
        task = "keep" if number % 2 else None
        ids.append(
            atlas.regions.learn_episode(
                hubs[: len(actions)], actions, reward, namespace=namespace, task_type=task
            ).feedback_id
        )
        if number == 0:
            first = counts(atlas, namespace)
    for feedback_id in (ids[2], ids[1], ids[3]):
        assert atlas.undo(feedback_id, namespace=namespace).status == "undone"
    left = counts(atlas, namespace)
    assert left.keys() == first.keys()
    assert all(left[key] == pytest.approx(first[key]) for key in first)
    atlas.undo(ids[0])
    assert atlas.store.regions.get_all_transitions(namespace, 1) == []


def test_snapshots_hold_steps(atlas, namespace, hubs):
    atlas.regions.learn_episode(
        hubs[:2], ["find", "take"], 0.3, namespace=namespace, task_type="keep"
    )
    before = sorted(atlas.store.regions.get_all_transitions(namespace, 1))
    snapshot = atlas.namespaces.snapshot(namespace)
    atlas.regions.learn_episode(hubs[:2], ["find", "throw"], -1.0, namespace=namespace)
    atlas.namespaces.restore(snapshot, namespace=namespace)
    assert sorted(atlas.store.regions.get_all_transitions(namespace, 1)) == before


def test_forgetting_a_namespace_leaves_no_row(atlas, namespace, hubs):
    before = rows(atlas)
    for task in (None, "keep"):
        atlas.regions.learn_episode(
            hubs[:2], ["find", "take"], 1.0, namespace=namespace, task_type=task
        )
    atlas.namespaces.snapshot(namespace)
    assert rows(atlas) != before
    atlas.forget(namespace=namespace)
    assert rows(atlas) | {s.journal.name: 0} == before | {s.journal.name: 0}


def test_a_frozen_namespace_refuses(atlas, namespace, hubs):
    atlas.namespaces.freeze(namespace)
    before = rows(atlas)
    given = {"namespace": namespace, "episode_id": f"e {namespace}"}
    receipt = atlas.regions.learn_episode(hubs[:1], ["find"], 1.0, **given)
    assert (receipt.status, "is frozen" in receipt.note) == ("refused", True)
    assert rows(atlas) == before
    atlas.namespaces.unfreeze(namespace)
    assert atlas.regions.learn_episode(hubs[:1], ["find"], 1.0, **given).status == "applied"


async def test_off_the_event_loop(atlas, namespace, hubs):
    receipt = await atlas.aio.regions.learn_episode(hubs[:1], ["find"], 1.0, namespace=namespace)
    assert receipt.status == "applied"
    assert (hubs[0], "find", "", None) in counts(atlas, namespace)


def test_the_ranker_and_the_baseline_stay(atlas, namespace, hubs):
    turn = atlas.retrieve("Text 5", namespace=namespace).turn
    atlas.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node]))
    before = atlas.store.learned.get_state(namespace).mind
    atlas.regions.learn_episode(hubs[:1], ["find"], 1.0, namespace=namespace)
    assert atlas.store.learned.get_state(namespace).mind == before


def test_a_hub_that_is_removed_takes_its_counts(open_regions):
    """Others stay; undoing afterwards works and leaves nothing, also where it led there."""
    memory = open_regions
    a, b, c = (hub.id for hub in memory.store.regions.hubs(1)[:3])
    receipt = memory.regions.learn_episode([a, b, c], ["find", "take"], 1.0, episode_id="e")
    assert receipt.status == "applied"
    memory.forget(b)
    assert {region for region, *_ in counts(memory, "default")} == {a, c}
    model = memory.regions.mdp()
    assert model.transition_probability(a, "find", None) == 0.0
    assert [stage.action for stage in model.strategy_for(a)] == ["find"]
    memory.regions.learn_episode([a], ["find"], 1.0, episode_id="f")
    assert model.transition_probability(a, "find", None) == 1.0
    assert memory.undo("e").status == memory.undo("f").status == "undone"
    assert memory.store.regions.get_all_transitions("default", 1) == []


@pytest.fixture
def open_regions(open_memory):
    """A memory of its own with regions, once on each database."""
    with open_memory() as memory:
        texts = [Document(f"number {n}", id=f"f{n}") for n in range(100)]
        pages = [
            Document("It tells of Second Page.", id="m0", metadata={"title": "First Page"}),
            Document("It tells of nothing.", id="m1", metadata={"title": "Second Page"}),
            Document("who?", id="typed", metadata={"type": "question"}),
        ]
        memory.add_documents([*texts, *pages])
        assert isinstance(memory, CrabPath)
        assert 1 in memory.regions.levels()
        yield memory
