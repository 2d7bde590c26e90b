"""Feedback without a turn id: shared among the last turns, each of which is consumed once."""

import math
import time
from dataclasses import replace

import pytest

from crabpath_retrievers import Feedback

QUESTION = "Which fruit is red?"


@pytest.mark.parametrize(("source", "weight"), [("human", 1.0), ("self", 0.6)])
def test_late_feedback_is_shared_among_the_last_turns(memory, host, source, weight):
    """Those of its namespace; together they count as one success, as its source weighs."""
    elsewhere, turns = host.ask("ada"), [host.ask() for _ in range(3)]
    receipt = memory.record(Feedback(None, 1.0, used=["a"], source=source))
    assert host.consumers([elsewhere, *turns]) == dict.fromkeys(turns, receipt.feedback_id)
    assert host.usage()["a"] == (pytest.approx(weight), 0.0)
    memory.record(Feedback(None, 1.0, namespace="ada"))
    assert host.consumers([elsewhere])


def test_later_turns_get_more(open_memory, host_of):
    """The later of two turns gets e^{-0} / (1 + e^{-λ}); the earlier one the rest."""
    with open_memory(turn_decay=math.log(3)) as memory:
        host = host_of(memory)
        host.ask()
        memory.retrieve(QUESTION, filter=None, k=1)
        memory.record(Feedback(None, -1.0, used=["a", "b", "c"]))
        # The turn with all three counts 1/4, the later one with a single document 3/4.
        losses = sorted(lost for _, lost in host.usage().values())
    assert losses == pytest.approx([0.25, 0.25, 1.0])


def test_a_turn_is_consumed_once(memory, host):
    """What was consumed by its own feedback is no candidate; the rest still is, once."""
    first, second = host.ask(), host.ask()
    memory.record(Feedback(second, 1.0, used=["b"]))
    late = memory.record(Feedback(None, 1.0, used=["a"]))
    assert host.consumers([first]) == {first: late.feedback_id}
    assert host.usage()["a"] == (1.0, 1.0)
    again = memory.record(Feedback(None, 1.0, used=["a"]))
    assert (again.status, host.status(again.feedback_id)) == ("refused", "refused")
    assert "none of the last 10 turns of namespace 'default' within 900 seconds" in again.note
    assert "give the turn id" in again.note
    assert memory.record(Feedback(None, 1.0, namespace="unseen")).status == "refused"


def test_the_window_ends_after_ten_turns_and_fifteen_minutes(memory, host):
    """The eleventh turn back is out of reach, consumed ones counting too, and one of 901 s ago."""
    turns = [host.ask() for _ in range(12)]
    memory.record(Feedback(turns[-1], 1.0))
    memory.record(Feedback(None, 1.0))
    assert set(host.consumers(turns)) == set(turns[2:])
    turn = memory.retrieve(QUESTION, namespace="old", record=False).turn
    for age in (901, 890):
        memory.store.record(replace(turn, id=f"{age}", created=time.time() - age))
    memory.record(Feedback(None, 1.0, namespace="old"))
    assert set(host.consumers(["901", "890"])) == {"890"}


def test_the_window_ends_when_the_feedback_was_given(open_memory, host_of):
    """However late it is applied, turns that came after it are not meant."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        before = host.ask()
        memory.record(Feedback(None, 1.0))
        after = host.ask()
    with open_memory() as memory:
        assert set(host_of(memory).consumers([before, after])) == {before}


def test_documents_say_which_turns_are_meant(memory, host):
    """Turns that returned none of the named documents are left for other feedback."""
    whole = host.ask()
    single = memory.retrieve(QUESTION, k=1)
    (shown,) = (item.node.id for item in single.documents)
    memory.record(Feedback(None, 1.0, used=[min({"a", "b", "c"} - {shown})]))
    assert set(host.consumers([whole, single.turn.id])) == {whole}
