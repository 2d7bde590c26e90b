"""Turns that are judged count steps in regions, and failures take from rewards fairly."""

import math

import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.learning.rules.transitions import get_action_type
from crabpath_retrievers.learning.standalone import StandaloneLearner


def steps(memory, namespace):
    """All counts of level 1 and of all together."""
    return {one.place: one.counts for one in memory.store.regions.get_all_transitions(namespace, 1)}


def ask(memory, namespace, number=5, **options):
    """A turn about a page; recorded before it is returned."""
    turn = memory.retrieve(f"Page {number}", namespace=namespace, k=3, **options).turn
    memory.store.flush()
    return turn


def decay(memory, namespace, node):
    """Nats that failures have taken from the reward of a document."""
    (key,) = memory.store.learned.keys([node]).values()
    return memory.store.learned.usage(memory.store.walk.get_clock(namespace).key, [key])[key].decay


OUTCOMES = [
    {"outcome": 1.0, "used": [0]},
    {"outcome": 1.0, "used": [0], "unused": [1]},
    {"outcome": -1.0, "used": [1]},
    {"outcome": 0.5, "answer": "Text 5 tells of Page 6."},
    {"outcome": 1.0},
    {"outcome": -0.3, "source": "self"},
]


def feedback(turn, given, **more):
    """Feedback about a turn, whose documents are named by their places."""
    known = {
        name: [turn.returned[place].node for place in value]
        if name in {"used", "unused"}
        else value
        for name, value in given.items()
    }
    return Feedback(turn.id, **known, **more)


def test_a_turn_counts_where_its_question_lies(atlas, namespace):
    turn = ask(atlas, namespace, task_type="refund")
    atlas.record(feedback(turn, OUTCOMES[0]))
    region = atlas.regions.assign("Page 5")
    named = {hub.id: hub.key for hub in atlas.store.regions.hubs(1)}
    table, found = atlas.regions.assignments(1), steps(atlas, namespace)
    for task in ("", "refund"):
        assert found[1, named[region], task, "", 0][:2] == (1.0, 1.0)
        for level, key in ((0, 0), (1, named[region])):
            mine = [(p, n) for p, n in found.items() if p[:3] == (level, key, task) and p[3]]
            assert sum(n[0] for _, n in mine) == 3.0
            assert sum(n[1] for _, n in mine) == 1.0
            assert all(n[0] == n[2] for _, n in mine)
            assert {p[3] for p, _ in mine} == set(map(get_action_type, turn.returned))
            led = {named[table[item.node]] for item in turn.returned} if level else {0}
            assert {p[4] for p, _ in mine} == led
    assert {p[0] for p in found} == {0, 1}


@pytest.mark.parametrize("given", OUTCOMES)
def test_undone_every_count_is_as_before(atlas, namespace, given):
    """Another lesson stays to the last digit, and so does what was learned beside steps."""
    atlas.record(feedback(ask(atlas, namespace), OUTCOMES[2]))
    before = steps(atlas, namespace)
    turn = ask(atlas, namespace, task_type="refund")
    receipt = atlas.record(feedback(turn, given))
    assert receipt.status == "applied"
    assert steps(atlas, namespace) != before
    assert atlas.undo(receipt.feedback_id).status == "undone"
    after = steps(atlas, namespace)
    assert after.keys() == before.keys()
    assert all(after[place] == pytest.approx(before[place]) for place in before)


def test_undone_in_any_order_no_row_is_left(atlas, namespace):
    ids = []
    for given in OUTCOMES:
        turn = ask(atlas, namespace, task_type="refund" if len(ids) % 2 else None)
        ids.append(atlas.record(feedback(turn, given)).feedback_id)
    for place in (3, 0, 5, 2, 1, 4):
        atlas.undo(ids[place])
    assert steps(atlas, namespace) == {}
    keys = list(atlas.store.learned.keys([f"d{n}" for n in range(300)]).values())
    assert atlas.store.learned.usage(atlas.store.walk.get_clock(namespace).key, keys) == {}


@pytest.mark.parametrize("given", OUTCOMES[:4])
def test_another_process_counts_the_same(atlas, namespace, given):
    other = f"{namespace} outside"
    for learning, learner in ((namespace, atlas), (other, StandaloneLearner(atlas.store))):
        for number in (5, 77):
            turn = ask(atlas, learning, number, task_type="refund")
            assert learner.record(feedback(turn, given)).status == "applied"
    assert steps(atlas, namespace)
    assert steps(atlas, other) == steps(atlas, namespace)


def test_late_feedback_counts_all_its_turns(atlas, namespace):
    for number in (5, 77, 120):
        ask(atlas, namespace, number)
    assert atlas.record(Feedback(None, 1.0, namespace=namespace)).status == "applied"
    found = steps(atlas, namespace)
    came, *_ = found[0, 0, "", "", 0]
    assert came == pytest.approx(1.0)
    assert len({place[1] for place in found if place[0] and not place[3]}) > 1


def test_a_failure_takes_from_what_was_followed(atlas, namespace):
    turn = ask(atlas, namespace)
    atlas.record(feedback(turn, {"outcome": 1.0, "used": [0]}))
    followed, other = (item.node for item in turn.returned[:2])
    usage = decay(atlas, namespace, followed)
    assert usage == 0.0
    turn = ask(atlas, namespace)
    blamed = next(place for place, item in enumerate(turn.returned) if item.node == followed)
    receipt = atlas.record(feedback(turn, {"outcome": -1.0, "used": [blamed]}))
    taken = decay(atlas, namespace, followed)
    # One success before: two thirds of the nats; the region is better than even.
    assert 0 < taken < -math.log(0.7 + 0.25 * 0.5) * 2 / 3
    assert decay(atlas, namespace, other) == 0.0
    atlas.undo(receipt.feedback_id)
    assert decay(atlas, namespace, followed) == 0.0


def test_a_lost_reward_reaches_the_ranking(atlas, namespace):
    turn = ask(atlas, namespace)
    node = turn.returned[0].node
    atlas.record(feedback(turn, {"outcome": -1.0, "used": [0]}))
    gone = 1 - math.exp(-decay(atlas, namespace, node))
    assert 0.05 < gone < 0.3

    def shown(namespace):
        answer = atlas.retrieve("Page 5", namespace=namespace, k=50, record=False)
        return next(item for item in answer.turn.returned if item.node == node)

    assert shown(namespace).features["decayed"] == pytest.approx(gone, abs=1e-4)
    fresh = shown(f"{namespace} fresh")
    assert fresh.features.get("decayed", 0.0) == 0.0
    assert shown(namespace).probability < fresh.probability
