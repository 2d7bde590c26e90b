"""Turn records: written behind the answers and in order, found again; on both databases."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from langchain_core.utils.uuid import uuid7

from crabpath_retrievers import (
    ConsideredEdge,
    PathEdge,
    ReturnedDocument,
    SeedRecord,
    Turn,
    WalkStep,
)
from crabpath_retrievers.core.records import is_recent_id, make_turn_id
from crabpath_retrievers.errors import NotFoundError, StoreError, StoreUnavailableError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.turn_queue import TurnWriter
from tests.seams import make_change

AWAY = StoreUnavailableError("the database is down")
PATH = PathEdge("a", "b", "link", 0.5, "habitual", 0.7)
CONSIDERED = ConsideredEdge("b", "link", 0.5, 0.1, 0.7, "habitual")
STEP = WalkStep(
    *("a", 0, (CONSIDERED,), ("b",), ()),
    stopped=True,
    stop_weight=0.1,
    stop_probability=0.3,
    temperature=0.2,
    decided_by="policy",
)
FULL = Turn(
    id="t1",
    namespace="default",
    clock=1,
    created=1.5,
    query="Wer baute “Köln”? 東京",
    seeds=(SeedRecord("a", 0.4, 0.3, 0.2, 0.1, hinted=True),),
    steps=(STEP,),
    visited=("a", "b"),
    returned=(ReturnedDocument("b", 0.9, "walk", (PATH,), {"similarity": 0.1}),),
    guardrails=("c",),
    novelty={"top": 0.3, "known": False, "novel": True},
    explored=True,
    latency_ms={"walk": 1.25},
)


def make_record(number):
    """A turn with this number as id."""
    return make_change("RecordTurn", replace(FULL, id=f"t{number}", namespace="n"))


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


def test_a_long_outage_keeps_the_latest_and_is_logged_once(caplog):
    """256 records wait; of 270 the oldest are given up; how many is logged when it ends."""
    trouble = [AWAY]

    def fail(_ids):
        if trouble:
            raise trouble[0]

    database = Database(fail)
    for number in range(270):
        database.add(number)
        with pytest.raises(StoreUnavailableError):
            database.writer.settle()
    assert caplog.text.count("turn records are lost: the database is down") == 1
    trouble.clear()
    database.writer.settle()
    assert "14 turn records were lost" in caplog.text
    assert len(database.written) == 256


@pytest.mark.parametrize("error", [StoreError("no text"), TypeError("no text")], ids=repr)
def test_a_record_that_cannot_be_written_loses_only_itself(caplog, error):
    """In a batch or alone, also for a reason that nobody foresaw; the next ones are written."""

    def fail(ids):
        if "t2" in ids:
            raise error

    database = Database(fail)
    for numbers in (range(5), [2], [7]):
        database.add(*numbers)
        database.writer.settle()
    assert database.written == ["t0", "t1", "t3", "t4", "t7"]
    assert caplog.text.count("a turn record could not be written: no text") == 2


def test_an_outage_between_single_writes_keeps_the_rest():
    """The database goes away after the first of them: the others wait and come later."""
    trouble = [StoreError("not text"), AWAY]

    def fail(ids):
        if (len(ids) > 1 and len(trouble) == 2) or (database.batches and trouble):
            raise trouble.pop(0)

    database = Database(fail)
    database.add(*range(4))
    with suppress(StoreUnavailableError):  # else the thread has met the outage before us
        database.writer.settle()
    database.writer.settle()
    assert not trouble
    assert database.written == ["t0", "t1", "t2", "t3"]


def test_changes_come_after_the_turns_that_were_handed_over(store):
    """Forgetting a namespace right after an answer forgets that turn too."""
    store.record(make_record(1).turn)
    store.apply([make_change("forget_namespace", "n")])
    assert store.catalog.statistics()["turns"] == 0


def test_turns_of_several_namespaces_that_wait_are_recorded_in_one_batch(store):
    """Each namespace, new or not, numbers its own turns in the order of the answers."""
    store.apply([make_change("RecordTurn", replace(FULL, id="first", namespace="ann"))])
    asked = [(f"t{number}", "ann" if number % 3 else "bob") for number in range(9)]
    for name, namespace in asked:
        store.record(replace(FULL, id=name, namespace=namespace))
    store.flush()
    for namespace, before in ("ann", 1), ("bob", 0):
        names = [name for name, own in asked if own == namespace]
        clocks = [store.turns.get(name, namespace=namespace).clock for name in names]
        assert clocks == list(range(before + 1, before + 1 + len(names)))
        assert store.walk.get_clock(namespace).turn == clocks[-1]


def test_a_turn_that_another_process_records_now_is_waited_for(location):
    """A worker that gets the feedback before the other one has written the turn learns from it."""
    with closing(GraphStore(location)) as asked, closing(GraphStore(location)) as other:
        turn = replace(FULL, id=make_turn_id(), run_id=str(uuid7()))
        other.turns.latest("default")  # opens its connection
        asked.record(turn)
        assert other.turns.find(turn.id) is not None
        begun = time.monotonic()
        assert other.turns.find("0" * 32) is None
        assert time.monotonic() - begun < 0.05


def test_ids_of_turns_and_of_runs_tell_their_age():
    """Ids of other kinds are not recent."""
    now = [make_turn_id(), str(uuid7()), uuid7().hex]
    assert all(is_recent_id(name, 2.0) for name in now)
    past = f"{int((time.time() - 60) * 1000):012x}" + now[0][12:]
    others = [past, "t1", "", "zzzzzzzz-zzzz-zzzz", uuid.uuid4().hex, "ffffffffffff"]
    assert not any(is_recent_id(name, 2.0) for name in others)
    assert uuid.UUID(now[0]).version == 7
    assert len({make_turn_id() for _ in range(1000)}) == 1000


def test_a_stored_turn_comes_back_equal_and_is_recorded_once(store):
    """The same id again is refused and does not advance the clock."""
    store.apply([make_change("RecordTurn", FULL)])
    assert store.turns.get("t1") == FULL
    with pytest.raises(StoreError):
        store.apply([make_change("RecordTurn", FULL)])
    assert store.walk.get_clock("default").turn == 1


def test_turns_are_numbered_and_found_by_id_and_run_in_their_namespace(store):
    """A run has its last turn; forgetting one namespace deletes only its turns."""
    for name, namespace, run in ("t1", "ann", "run"), ("t2", "ann", "run"), ("t3", "bob", None):
        turn = replace(FULL, id=name, namespace=namespace, run_id=run, clock=99)
        store.apply([make_change("RecordTurn", turn)])
    assert [store.turns.get(f"t{n}").clock for n in (1, 2, 3)] == [1, 2, 1]
    assert [store.walk.get_clock(name).turn for name in ("ann", "bob")] == [2, 1]
    assert (store.turns.latest("ann"), store.turns.latest("never seen")) == ("t2", None)
    assert store.turns.get("run").id == store.turns.get("run", namespace="ann").id == "t2"
    for wanted in ("t1", "run"):
        with pytest.raises(NotFoundError, match="no turn"):
            store.turns.get(wanted, namespace="bob")
    store.apply([make_change("forget_namespace", "ann")])
    for gone in ("t1", "run", "never recorded"):
        with pytest.raises(NotFoundError):
            store.turns.get(gone)
    assert store.turns.get("t3").namespace == "bob"


def test_turns_of_many_threads_get_distinct_clocks(store):
    """Turns that are recorded at the same time, in two ways, are numbered without gaps."""

    def record(number):
        change = make_record(number)
        store.apply([change]) if number % 2 else store.record(change.turn)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(48)))
    assert sorted(store.turns.get(f"t{n}").clock for n in range(48)) == list(range(1, 49))


@pytest.mark.parametrize("query", ["nul \x00 inside", "lone \ud800 surrogate", "x" * 100_000])
def test_odd_queries_can_be_recorded(store, query):
    """No query text makes the record fail, and text that is no text comes back readable."""
    store.apply([make_change("RecordTurn", replace(FULL, query=query))])
    assert store.turns.get("t1").query == query.replace("\x00", "").replace("\ud800", "?")
