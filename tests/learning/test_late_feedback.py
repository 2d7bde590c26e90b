"""Feedback without a turn id: shared among the last turns, each of which is consumed once."""

import math
import time
from dataclasses import replace

import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.learning.credit import share_by_recency


def test_shares_fall_with_every_turn():
    """With λ = ln 2 a turn counts half of the next one: 1/7, 2/7, 4/7."""
    assert share_by_recency([3, 4, 5], math.log(2)) == pytest.approx([1 / 7, 2 / 7, 4 / 7])


def test_shares_count_turns_not_places():
    """A gap of two turns counts as two: e^{-2λ} : 1."""
    assert share_by_recency([8, 10], math.log(2)) == pytest.approx([1 / 5, 4 / 5])


@pytest.mark.parametrize("delay", [0.0, 0.3, 50.0])
def test_shares_sum_to_one(delay):
    assert sum(share_by_recency([1, 2, 3, 500], delay)) == pytest.approx(1.0)


def test_late_feedback_is_shared_among_the_last_turns(memory, host):
    turns = [host.ask() for _ in range(3)]
    receipt = memory.record(Feedback(None, 1.0, used=["a"]))
    assert receipt.status == "applied"
    assert memory.store.learned.find_consumers(turns) == dict.fromkeys(turns, receipt.feedback_id)
    assert host.usage()["a"] == (pytest.approx(1.0), 0.0)


def test_later_turns_get_more(open_memory, host_of):
    """The later of two turns gets e^{-0} / (1 + e^{-λ}); the earlier one the rest."""
    with open_memory(turn_decay=math.log(3)) as memory:
        host = host_of(memory)
        host.ask()
        memory.retrieve("Which fruit is red?", filter=None, k=1)
        memory.record(Feedback(None, -1.0, used=["a", "b", "c"]))
        # The turn with all three counts 1/4, the later one with a single document 3/4.
        losses = sorted(lost for _, lost in host.usage().values())
    assert losses == pytest.approx([0.25, 0.25, 1.0])


def test_a_turn_is_consumed_once(memory, host):
    """What was consumed by its own feedback is no candidate; the rest still is, once."""
    first, second = host.ask(), host.ask()
    memory.record(Feedback(second, 1.0, used=["b"]))
    late = memory.record(Feedback(None, 1.0, used=["a"]))
    assert memory.store.learned.find_consumers([first]) == {first: late.feedback_id}
    assert host.usage()["a"] == (1.0, 1.0)
    again = memory.record(Feedback(None, 1.0, used=["a"]))
    assert again.status == "refused"
    assert "none of the last 10 turns of namespace 'default' within 900 seconds" in again.note


def test_the_window_ends_after_ten_turns(memory, host):
    turns = [host.ask() for _ in range(12)]
    memory.record(Feedback(turns[-1], 1.0))
    memory.record(Feedback(None, 1.0))
    assert set(memory.store.learned.find_consumers(turns)) == set(turns[2:])


def test_the_window_ends_after_fifteen_minutes(memory, host):
    """A turn of 901 seconds ago is out of reach, one of 890 seconds ago is not."""
    turn = memory.retrieve("Which fruit is red?", record=False).turn
    for age in (901, 890):
        memory.store.record(replace(turn, id=f"{age}", created=time.time() - age))
    memory.record(Feedback(None, 1.0))
    assert set(memory.store.learned.find_consumers(["901", "890"])) == {"890"}


def test_the_window_is_that_of_the_namespace(memory, host):
    """Turns of others are no candidates, and without a namespace "default" is meant."""
    turns = {name: host.ask(name) for name in ("ada", "grace", "default")}
    memory.record(Feedback(None, 1.0, namespace="ada"))
    assert set(memory.store.learned.find_consumers(list(turns.values()))) == {turns["ada"]}
    memory.record(Feedback(None, 1.0))
    consumed = memory.store.learned.find_consumers(list(turns.values()))
    assert set(consumed) == {turns["ada"], turns["default"]}


def test_the_window_ends_when_the_feedback_was_given(open_memory, host_of):
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        before = host.ask()
        memory.record(Feedback(None, 1.0))
        after = host.ask()
    with open_memory() as memory:
        assert set(memory.store.learned.find_consumers([before, after])) == {before}


def test_documents_tell_which_turns_are_meant(memory, host):
    """Turns that returned none of the named documents are left for other feedback."""
    whole = host.ask()
    single = memory.retrieve("Which fruit is red?", k=1)
    (shown,) = (item.node.id for item in single.documents)
    other = min({"a", "b", "c"} - {shown})
    memory.record(Feedback(None, 1.0, used=[other]))
    assert set(memory.store.learned.find_consumers([whole, single.turn.id])) == {whole}


def test_no_turn_at_all(memory, host):
    """In a namespace that never asked anything late feedback is refused and kept."""
    receipt = memory.record(Feedback(None, 1.0, namespace="unseen"))
    assert receipt.status == "refused"
    assert "give the turn id" in receipt.note
    assert host.status(receipt.feedback_id) == "refused"


def test_sources_weigh_late_feedback_too(memory, host):
    """Weight of the source times the share: 0.6 over two turns."""
    host.ask()
    host.ask()
    memory.record(Feedback(None, 1.0, used=["a"], source="self"))
    assert host.usage()["a"] == (pytest.approx(0.6), 0.0)
