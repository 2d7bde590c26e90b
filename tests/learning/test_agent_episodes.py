"""Users' own episodes: what is counted of them, once, how it goes away, and what is refused."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sqlalchemy as sa
import tables as s

from crabpath_retrievers import (
    EdgeKind,
    EmbeddingMismatchError,
    Feedback,
    InvalidInputError,
    NotFoundError,
)
from tests.seams import get_services, make_change


def read_counts(memory, namespace):
    """Steps of level 1 as (region, action, task, next) to (trials, wins, ends, end_wins)."""
    named = {hub.key: hub.id for hub in memory.store.regions.hubs(1)}
    return {
        (named[one.region], one.action, one.task, named.get(one.next)): one.counts
        for one in memory.store.regions.get_all_transitions(namespace, 1)
        if one.level
    }


def count_rows(memory):
    """How many rows every table has."""
    with memory.store.connect() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table))
            for table in s.metadata.sorted_tables
        }


@pytest.fixture
def hubs(atlas):
    """Ids of the hubs of level 1; each lies in its own region."""
    return get_services(atlas).regions.hubs(1).ids


@pytest.fixture
def named(namespace):
    """An episode with an id, in the namespace of the test."""
    return {"namespace": namespace, "episode_id": f"e {namespace}"}


def test_an_episode_by_hand(atlas, namespace, hubs):
    """Two actions, then the end in a third region; what came by is counted apart."""
    a, b, c = hubs[:3]
    atlas.regions.learn_episode(
        [a, b, c], ["find", "take"], 0.5, task_type="keep", namespace=namespace
    )
    known = read_counts(atlas, namespace)
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
        make_change("TransitionCount", 0, 0, task, action, 0, 1.0, 0.75, *ends)
        for task in ("", "keep")
        for action, ends in (("", (0.0, 0.0)), ("find", (0.0, 0.0)), ("take", (1.0, 0.75)))
    }


def test_ids_and_vectors_are_the_same_states(atlas, namespace):
    """A lone text is one value, not its characters; the type of an action is what classify says."""
    ids = ["d3", "d77"]
    stored = atlas.store.catalog.vectors(ids)
    forms = [
        {"states": ids},
        {"states": [stored[node].tolist() for node in ids]},
        {"states": np.stack([stored[node] for node in ids])},
        {"states": ["d3", stored["d77"] * 5]},
    ]
    learn, found = atlas.regions.learn_episode, []
    calls = [{"name": "find"}, {"name": "take"}]
    for number, form in enumerate(forms):
        own = f"{namespace} {number}"
        learn(**form, actions=calls, reward=1.0, namespace=own, classify=lambda call: call["name"])
        found.append(read_counts(atlas, own))
    assert found == [found[0]] * len(forms)
    assert {region for region, *_ in found[0]} == {atlas.regions.assignments()[n] for n in ids}
    assert {action for _, action, *_ in found[0]} == {"", "find", "take"}
    learn("d3", "find", 1.0, namespace=namespace)
    learn(texts="Text 5", actions="find", reward=1.0, namespace=namespace)
    assert {action for _, action, *_ in read_counts(atlas, namespace)} == {"", "find"}


def test_default_actions(atlas, namespace):
    """The kind of the pointer between two documents, else the type of the next, else "read"."""
    asked = atlas.teach("Who?", metadata={"type": "question"}, namespace=namespace)
    keys = atlas.store.learned.keys(["d5", "d9"])

    def learn(*states, moved=None):
        if moved:
            delta = make_change("WeightDelta", keys["d5"], keys["d9"], *moved)
            atlas.store.apply([make_change("AdjustWeights", namespace, (delta,), "x")])
        atlas.regions.learn_episode(states, reward=1.0, namespace=namespace)
        return {action for _, action, *_ in read_counts(atlas, namespace)} - {""}

    assert learn("d5", asked) == {"question"}
    assert learn("d5", "d9") == {"question", "read"}
    # Nobody follows what advises against its target.
    assert learn("d5", "d9", moved=(EdgeKind.INHIBITS, -0.5)) == {"question", "read"}
    assert learn("d5", "d9", moved=(EdgeKind.CO_USED, 0.5)) == {"question", "read", "co_used"}
    assert learn("d5", "d6") == {"question", "read", "co_used", "mention"}
    atlas.forget(asked)


async def test_the_same_id_again_changes_nothing(atlas, named, namespace, hubs):
    """From many threads, also when it tells of something else; undone, it stays undone."""
    learn = atlas.regions.learn_episode
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: learn(hubs[:1], ["find"], 1.0, **named), range(8)))
    assert {receipt.status for receipt in receipts} == {"applied"}
    before = read_counts(atlas, namespace)
    assert before[hubs[0], "find", "", None][0] == 1.0
    again = await atlas.aio.regions.learn_episode(hubs[:1], ["throw"], -1.0, **named)
    assert (again.status, again.note) == ("applied", None)
    assert read_counts(atlas, namespace) == before
    atlas.undo(named["episode_id"])
    assert learn(hubs[:1], ["find"], 1.0, **named).status == "undone"
    assert read_counts(atlas, namespace) == {}


def test_what_stays_after_an_undo_is_as_if_the_rest_had_never_been(atlas, namespace, hubs):
    """Counts by region; the ranker and the baseline stay: it says what to do, not what to find."""
    turn = atlas.retrieve("Text 5", namespace=namespace).turn
    given = atlas.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node])).feedback_id
    ids, mind = [], atlas.store.learned.get_state(namespace).model
    for number, (actions, reward) in enumerate(
        [(["find", "take"], 0.3), (["find"], -0.7), (["throw"], 1.0), (["find", "take"], 0.1)]
    ):
        task = "keep" if number % 2 else None
        receipt = atlas.regions.learn_episode(
            hubs[: len(actions)], actions, reward, namespace=namespace, task_type=task
        )
        ids.append(receipt.feedback_id)
        if number == 0:
            first = read_counts(atlas, namespace)
    assert atlas.store.learned.get_state(namespace).model == mind
    for feedback_id in (ids[2], ids[1], ids[3]):
        assert atlas.undo(feedback_id, namespace=namespace).status == "undone"
    left = read_counts(atlas, namespace)
    assert left.keys() == first.keys()
    assert all(left[key] == pytest.approx(first[key]) for key in first)
    for feedback_id in (ids[0], given):
        atlas.undo(feedback_id)
    assert atlas.store.regions.get_all_transitions(namespace, 1) == []


ONE = ["d1"]
BAD = {
    InvalidInputError: [
        ({}, "exactly one of states and texts"),
        ({"texts": ["seen", " "]}, "texts must not be empty"),
        ({"states": ["d1", "d2", "d3"]}, "or one fewer .* not 1"),
        ({"actions": [None]}, "an action must be a text of 1 to 200"),
        ({"actions": ["a" * 201]}, "an action must be a text of 1 to 200"),
        ({"classify": len}, "an action must be a text of 1 to 200 .* not 4"),
        ({"task_type": "t" * 201}, "task_type must be a text of 1 to 200"),
        ({"reward": 1.5}, "reward must be a number from -1 .* not 1.5"),
        ({"states": ["d1\x00"], "actions": None}, "at least one state"),
        ({"states": [[float("nan")] * 16]}, "must be a finite vector"),
        ({"states": [[1.0] * 16] * 2, "actions": None}, "give actions"),
        ({"namespace": ""}, "namespace must be a non-empty text"),
        ({"episode_id": "e" * 201}, "episode_id must have 1 to 200 .* not 201"),
    ],
    NotFoundError: [
        ({"states": ["unknown"]}, "there is no document 'unknown'"),
    ],
    EmbeddingMismatchError: [({"states": [[1.0, 2.0]]}, "2 dimensions, the memory 16")],
    KeyError: [({"classify": {}.__getitem__}, "find")],  # the caller's own error is heard
}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [(given, error, words) for error, rows in BAD.items() for given, words in rows],
)
def test_what_cannot_be_learned_from(atlas, namespace, given, error, words):
    """One sentence each, and nothing is half written."""
    options = {"actions": ["find"], "reward": 1.0, "namespace": namespace, **given}
    if not {"texts", "states"} & set(given) and given:
        options["states"] = ONE
    before = count_rows(atlas)
    with pytest.raises(error, match=words) as raised:
        atlas.regions.learn_episode(**options)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600
    assert count_rows(atlas) == before


def test_who_may_not_learn(atlas, namespace, named):
    """A frozen namespace; another one with notes of others, but it may use their ids."""
    learn, other = atlas.regions.learn_episode, f"{namespace}2"
    turn = atlas.retrieve("Text 5", namespace=namespace).turn.id
    atlas.record(Feedback(turn, 1.0, feedback_id=f"f {namespace}"))
    note = atlas.teach("Only for Ann.", namespace=namespace)
    atlas.namespaces.freeze(namespace)
    before = count_rows(atlas)
    receipt = learn(ONE, ["find"], 1.0, **named)
    assert (receipt.status, "is frozen" in receipt.note) == ("refused", True)
    assert count_rows(atlas) == before
    atlas.namespaces.unfreeze(namespace)
    assert learn(ONE, ["find"], 1.0, **named).status == "applied"
    for used in (f"f {namespace}", f"e {namespace}"):
        receipt = learn(ONE, ["find"], 1.0, namespace=other, episode_id=used)
        assert receipt.status == "applied"
    before = count_rows(atlas)
    with pytest.raises(NotFoundError, match="there is no document"):
        learn([note], ["find"], 1.0, namespace=other)
    assert count_rows(atlas) == before
    assert learn([note], ["find"], 1.0, namespace=namespace).status == "applied"
    atlas.forget(note)
