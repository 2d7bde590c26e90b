"""Turn records are written behind the answers and in order."""

import threading
from contextlib import suppress
from itertools import chain

import pytest

from crabpath_retrievers.core.changes import ForgetNamespace, RecordTurn
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.errors import StoreError, StoreUnavailableError
from crabpath_retrievers.storage.write.turn_queue import TurnWriter


def record(number):
    """A turn with this number as id."""
    fields = dict.fromkeys(("seeds", "steps", "visited", "returned", "guardrails"), ())
    return RecordTurn(
        Turn(f"t{number}", namespace="n", clock=0, created=0.0, query="q", novelty={}, **fields)
    )


def test_what_waits_is_written_in_batches_and_in_order():
    """While the first write is held up the others gather, and go in one transaction."""
    batches, gate = [], threading.Event()

    def write(batch):
        gate.wait(5)
        batches.append([change.turn.id for change in batch])

    writer = TurnWriter(write)
    for number in range(5):
        writer.add(record(number))
    gate.set()
    writer.settle()
    assert list(chain.from_iterable(batches)) == ["t0", "t1", "t2", "t3", "t4"]
    assert len(batches) <= 2


def test_turns_of_many_threads_are_all_kept(store):
    """Twenty threads hand over ten turns each; every one is in the log afterwards."""

    def hand_over(thread):
        for number in range(10):
            store.record(record(100 * thread + number).turn)

    threads = [threading.Thread(target=hand_over, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.catalog.statistics()["turns"] == 200
    assert store.turns.get("t1905").clock > 0


def test_a_database_that_is_away_gets_its_turns_later():
    """Settling says what is wrong and keeps the record; with the next one both are written."""
    written, down = [], [True]

    def write(batch):
        if down:
            msg = "the database is down"
            raise StoreUnavailableError(msg)
        written.extend(change.turn.id for change in batch)

    writer = TurnWriter(write)
    writer.add(record(1))
    with pytest.raises(StoreUnavailableError, match="is down"):
        writer.settle()
    down.clear()
    writer.add(record(2))
    writer.settle()
    assert written == ["t1", "t2"]


def test_a_refused_write_is_logged_and_does_not_stop_the_next(caplog):
    """What the database will never take is dropped; the log says how much and why."""
    written = []

    def write(batch):
        if not caplog.records:
            msg = "no space"
            raise StoreError(msg)
        written.extend(change.turn.id for change in batch)

    writer = TurnWriter(write)
    writer.add(record(1))
    writer.settle()
    writer.add(record(2))
    writer.settle()
    assert "a turn record could not be written: no space" in caplog.text
    assert written == ["t2"]


def test_a_write_that_fails_in_any_way_keeps_nobody_waiting(caplog):
    """An error that nobody foresaw is logged; whoever waits for the writer goes on."""

    def write(_batch):
        msg = "not JSON"
        raise TypeError(msg)

    writer = TurnWriter(write)
    writer.add(record(1))
    writer.settle()
    assert "not JSON" in caplog.text


def test_a_long_outage_keeps_the_latest(caplog):
    """256 records wait; the oldest of 300 are given up, and the log says so."""

    def write(_batch):
        msg = "the database is down"
        raise StoreUnavailableError(msg)

    writer = TurnWriter(write)
    for number in range(300):
        writer.add(record(number))
    with pytest.raises(StoreUnavailableError):
        writer.settle()
    assert "are lost" in caplog.text


def test_changes_come_after_the_turns_that_were_handed_over(store):
    """Forgetting a namespace right after an answer forgets that turn too."""
    store.record(record(1).turn)
    store.apply([ForgetNamespace("n")])
    assert store.catalog.statistics()["turns"] == 0


def test_a_record_that_cannot_be_written_loses_only_itself(caplog):
    """When a batch fails its records are written one by one."""
    written, gate = [], threading.Event()

    def write(batch):
        gate.wait(5)
        if any(change.turn.id == "t2" for change in batch):
            msg = "not text"
            raise StoreError(msg)
        written.extend(change.turn.id for change in batch)

    writer = TurnWriter(write)
    for number in range(5):
        writer.add(record(number))
    gate.set()
    writer.settle()
    assert written == ["t0", "t1", "t3", "t4"]
    assert caplog.text.count("could not be written: not text") == 1


def test_an_outage_between_single_writes_keeps_the_rest():
    """The database goes away after the first of them: the others wait and come later."""
    written, gate, trouble = [], threading.Event(), ["odd", "away"]

    def write(batch):
        gate.wait(5)
        if len(batch) > 1 and trouble[:1] == ["odd"]:
            trouble.pop(0)
            msg = "not text"
            raise StoreError(msg)
        if written and trouble:
            trouble.pop(0)
            msg = "the database is down"
            raise StoreUnavailableError(msg)
        written.extend(change.turn.id for change in batch)

    writer = TurnWriter(write)
    for number in range(4):
        writer.add(record(number))
    gate.set()
    with pytest.raises(StoreUnavailableError):
        writer.settle()
    writer.settle()
    assert written == ["t0", "t1", "t2", "t3"]


def test_an_outage_is_logged_once_and_told_when_it_ends(caplog):
    """Not one line for every turn that is given up."""
    down = [True]

    def write(_batch):
        if down:
            msg = "the database is down"
            raise StoreUnavailableError(msg)

    writer = TurnWriter(write)
    for number in range(270):
        writer.add(record(number))
        with suppress(StoreUnavailableError):
            writer.settle()
    assert caplog.text.count("turn records are lost: the database is down") == 1
    down.clear()
    writer.settle()
    assert "14 turn records were lost" in caplog.text
