"""One row that cannot be read stops no other: a memory opens, answers and learns as before."""

import json

import pytest
import sqlalchemy as sa
import tables as s

from crabpath_retrievers import Feedback, StoreError
from crabpath_retrievers.learning import queue
from crabpath_retrievers.learning.queue import FeedbackQueue


def damage(memory, table: sa.Table, **values) -> None:
    """Overwrite columns of every row of a table, as no change of this program would."""
    with memory.store._engine.begin() as connection:
        connection.execute(table.update().values(**values))


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps({"turn_id": None, "outcome": 1.0, "feedback_id": "odd", "namespace": ""}),
        json.dumps({"of": "another release"}),
        "no JSON",
    ],
)
def test_unreadable_feedback_is_refused_and_the_rest_is_learned(
    open_memory, host_of, payload, caplog
):
    """A store that holds such a row opens; the row is refused with a note, others are applied."""
    with open_memory(apply="external") as memory:
        memory.record(Feedback(None, 1.0, feedback_id="odd"))
        damage(memory, s.feedback, payload=payload)
        memory.record(Feedback(host_of(memory).ask(), 1.0, feedback_id="sound"))
    with open_memory() as memory:
        assert host_of(memory).status("sound") == "applied"
        assert memory.store.learned.count_feedback() == {"waiting": 0, "applied": 1, "refused": 1}
        assert memory.record(Feedback(host_of(memory).ask(), 1.0)).status == "applied"
        with pytest.raises(StoreError, match="'odd' cannot be read"):
            memory.record(Feedback(None, 1.0, feedback_id="odd"))
    assert "feedback 'odd' is refused: it cannot be read" in caplog.text


def test_a_damaged_turn_is_not_found_and_stops_no_window(memory, host, caplog):
    """Feedback about it is refused; feedback about the last turns counts for the others."""
    broken = host.ask()
    memory.store.flush()
    damage(memory, s.turns, record='{"id": "x"}')
    sound = host.ask()
    assert memory.record(Feedback(broken, 1.0)).status == "refused"
    assert memory.record(Feedback(None, 1.0)).status == "applied"
    assert memory.store.turns.find(sound).consumed is not None
    assert "a turn in the store is damaged and passed over" in caplog.text


def test_damaged_experience_is_passed_over(open_memory, host_of, caplog):
    """Episodes, a mind and a chunk that cannot be read: the memory answers, with a warning."""
    with open_memory() as memory:
        memory.record(Feedback(host_of(memory).ask(), 1.0, used=["a"]))
        damage(memory, s.episodes, documents="no JSON", indexed=0)
        damage(memory, s.namespaces, model='{"of": "another release"}')
    with open_memory() as memory:
        assert host_of(memory).ask()
        with memory.store._engine.begin() as connection:
            key = sa.select(s.nodes.c.key).where(s.nodes.c.id == "a").scalar_subquery()
            broken = s.contents.update().where(s.contents.c.node == key)
            connection.execute(broken.values(metadata="no JSON"))
        assert set(host_of(memory).found()) == {"b", "c"}
    for sentence in (
        "an episode in the store is damaged",
        "the learned model of 'default' is damaged",
        "a chunk in the store is damaged",
    ):
        assert sentence in caplog.text


def test_feedback_that_another_process_applies_meanwhile_is_applied(memory, host, monkeypatch):
    """Between two reads of its own somebody applied it: the receipt says so, not "refused"."""
    other = FeedbackQueue(memory.store, memory._services.recorder.queue._learner)
    assign = queue.assign_feedback

    def assign_late(store, settings, stored):
        """Credit feedback that another process has applied by now."""
        monkeypatch.undo()
        other.learn(stored)
        return assign(store, settings, stored)

    monkeypatch.setattr(queue, "assign_feedback", assign_late)
    receipt = memory.record(Feedback(host.ask(), 1.0, feedback_id="one"))
    assert (receipt.status, host.learned()) == ("applied", 1)
