"""Turn records are written behind the answers and in order."""

import threading

import pytest

from crabpath_retrievers.core.changes import ForgetNamespace, RecordTurn
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.errors import StoreError, StoreUnavailableError
from crabpath_retrievers.storage.write.turn_queue import TurnWriter

AWAY = StoreUnavailableError("the database is down")


def make_record(number):
    """A turn with this number as id."""
    fields = dict.fromkeys(("seeds", "steps", "visited", "returned", "guardrails"), ())
    return RecordTurn(
        Turn(f"t{number}", namespace="n", clock=0, created=0.0, query="q", novelty={}, **fields)
    )


class Database:
    """Writes wait for ``gate``; ``fail(ids)`` may raise; ``batches`` has what was written."""

    def __init__(self, fail=lambda ids: None):
        self.fail, self.gate, self.batches = fail, threading.Event(), []
        self.writer = TurnWriter(self.write)

    def write(self, batch):
        self.gate.wait(5)
        ids = [change.turn.id for change in batch]
        self.fail(ids)
        self.batches.append(ids)

    def add(self, *numbers):
        """Hand turns over before the first of them can be written."""
        for number in numbers:
            self.writer.add(make_record(number))
        self.gate.set()

    @property
    def written(self):
        return [turn for batch in self.batches for turn in batch]


def refuse(error):
    """Raise an error for as long as the list has one."""

    def fail(_ids):
        if error:
            raise error[0]

    return fail


def test_what_waits_is_written_in_batches_and_in_order():
    """While the first write is delayed the others gather, and go in one transaction."""
    database = Database()
    database.add(*range(5))
    database.writer.settle()
    assert database.written == ["t0", "t1", "t2", "t3", "t4"]
    assert len(database.batches) <= 2


def test_one_thread_writes_what_comes_soon_and_closing_ends_it():
    """To start a thread for every turn costs the answers more."""
    before = set(threading.enumerate())
    database = Database()
    database.add(1)
    database.writer.settle()
    (thread,) = set(threading.enumerate()) - before
    database.add(2)
    database.writer.settle()
    assert thread.is_alive()
    database.writer.close()
    thread.join(1)
    assert not thread.is_alive()
    assert database.written == ["t1", "t2"]


def test_a_database_that_is_away_gets_its_turns_later():
    """Settling says what is wrong and keeps the record; with the next one both are written."""
    trouble = [AWAY]
    database = Database(refuse(trouble))
    database.add(1)
    with pytest.raises(StoreUnavailableError, match="is down"):
        database.writer.settle()
    trouble.clear()
    database.add(2)
    database.writer.settle()
    assert database.written == ["t1", "t2"]


@pytest.mark.parametrize("error", [StoreError("no space"), TypeError("not JSON")], ids=str)
def test_a_refused_write_is_logged_and_does_not_stop_the_next(caplog, error):
    """What the database will never take is dropped, also for a reason that nobody foresaw."""
    trouble = [error]
    database = Database(refuse(trouble))
    database.add(1)
    database.writer.settle()
    trouble.clear()
    database.add(2)
    database.writer.settle()
    assert str(error) in caplog.text
    assert database.written == ["t2"]


def test_a_long_outage_keeps_the_latest_and_is_logged_once(caplog):
    """256 records wait; of 270 the oldest are given up; how many is logged when it ends."""
    trouble = [AWAY]
    database = Database(refuse(trouble))
    for number in range(270):
        database.add(number)
        with pytest.raises(StoreUnavailableError):
            database.writer.settle()
    assert caplog.text.count("turn records are lost: the database is down") == 1
    trouble.clear()
    database.writer.settle()
    assert "14 turn records were lost" in caplog.text
    assert len(database.written) == 256


def test_a_record_that_cannot_be_written_loses_only_itself(caplog):
    """When a batch fails its records are written one by one."""

    def fail(ids):
        if "t2" in ids:
            msg = "not text"
            raise StoreError(msg)

    database = Database(fail)
    database.add(*range(5))
    database.writer.settle()
    assert database.written == ["t0", "t1", "t3", "t4"]
    assert caplog.text.count("a turn record could not be written: not text") == 1


def test_an_outage_between_single_writes_keeps_the_rest():
    """The database goes away after the first of them: the others wait and come later."""
    trouble = [StoreError("not text"), AWAY]

    def fail(ids):
        if (len(ids) > 1 and len(trouble) == 2) or (database.batches and trouble):
            raise trouble.pop(0)

    database = Database(fail)
    database.add(*range(4))
    with pytest.raises(StoreUnavailableError):
        database.writer.settle()
    database.writer.settle()
    assert database.written == ["t0", "t1", "t2", "t3"]


def test_changes_come_after_the_turns_that_were_handed_over(store):
    """Forgetting a namespace right after an answer forgets that turn too."""
    store.record(make_record(1).turn)
    store.apply([ForgetNamespace("n")])
    assert store.catalog.statistics()["turns"] == 0
