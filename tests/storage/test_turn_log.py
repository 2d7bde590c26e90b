"""Turn records, on both databases."""

import pytest

from crabpath_retrievers.core.changes import ForgetNamespace, RecordTurn
from crabpath_retrievers.core.turn import (
    ConsideredEdge,
    PathEdge,
    ReturnedDocument,
    SeedRecord,
    Turn,
    WalkStep,
)
from crabpath_retrievers.errors import NotFoundError, StoreError

PATH = PathEdge("a", "b", "link", 0.5, "habitual", 0.7)
STEP = WalkStep(
    node="a",
    hop=0,
    candidates=(ConsideredEdge("b", "link", 0.5, 0.1, 0.7, "habitual"),),
    chosen=("b",),
    reflexes=(),
    stopped=True,
    stop_weight=0.0,
    stop_probability=0.3,
    temperature=0.2,
    decided_by="policy",
)


def turn(
    turn_id="t1", namespace="default", *, clock=1, query="Wer baute “Köln”? 東京", run_id=None
):
    """A record in which every field is filled."""
    return Turn(
        id=turn_id,
        namespace=namespace,
        clock=clock,
        created=1.5,
        query=query,
        seeds=(SeedRecord("a", 0.4, 0.3, 0.2, 0.1, hinted=True),),
        steps=(STEP,),
        visited=("a", "b"),
        returned=(ReturnedDocument("b", 0.9, "walk", (PATH,), {"similarity": 0.1}),),
        guardrails=("c",),
        novelty={"top": 0.3, "known": False, "novel": True},
        explored=True,
        run_id=run_id,
        latency_ms={"walk": 1.25},
    )


def test_a_record_survives_plain_data():
    """A turn made of its own dictionary is equal to it."""
    assert Turn.from_dict(turn().to_dict()) == turn()


def test_a_stored_turn_comes_back_equal(store):
    """What was recorded is read back with every field as it was."""
    store.apply([RecordTurn(turn())])
    assert store.turns.get("t1") == turn()


def test_recording_advances_the_clock_of_its_namespace(store):
    """Every turn counts once, and its record carries the number that the store gave it."""
    for number in (1, 2, 3):
        store.apply([RecordTurn(turn(f"t{number}", clock=99))])
    store.apply([RecordTurn(turn("x", "other"))])
    assert store.walk.get_clock("default").turn == 3
    assert store.walk.get_clock("other").turn == 1
    assert [store.turns.get(f"t{n}").clock for n in (1, 2, 3)] == [1, 2, 3]
    assert store.turns.latest("default") == "t3"
    assert store.turns.latest("never seen") is None


def test_turns_are_found_by_the_run_of_the_host(store):
    """A run id finds the last turn of that run."""
    store.apply([RecordTurn(turn("t1", run_id="run"))])
    store.apply([RecordTurn(turn("t2", run_id="run"))])
    assert store.turns.get("run").id == "t2"


def test_turns_of_another_namespace_are_refused(store):
    """Neither the id nor the run id finds a turn of a namespace that was not asked for."""
    store.apply([RecordTurn(turn("t1", "ann", run_id="run"))])
    assert store.turns.get("run", namespace="ann").id == "t1"
    for wanted in ("t1", "run"):
        with pytest.raises(NotFoundError, match="no turn"):
            store.turns.get(wanted, namespace="bob")
    with pytest.raises(NotFoundError):
        store.turns.get("never recorded")


def test_forgetting_a_namespace_deletes_its_turns(store):
    """The turns of a forgotten namespace are gone, those of others are not."""
    store.apply([RecordTurn(turn("t1", "ann")), RecordTurn(turn("t2", "bob"))])
    store.apply([ForgetNamespace("ann")])
    with pytest.raises(NotFoundError):
        store.turns.get("t1")
    assert store.turns.get("t2").namespace == "bob"


def test_a_turn_is_recorded_once(store):
    """The same id again is refused and does not advance the clock."""
    store.apply([RecordTurn(turn())])
    with pytest.raises(StoreError):
        store.apply([RecordTurn(turn())])
    assert store.walk.get_clock("default").turn == 1


@pytest.mark.parametrize("query", ["nul \x00 inside", "lone \ud800 surrogate", "x" * 100_000])
def test_odd_queries_can_be_recorded(store, query):
    """No query text makes the record fail, and text that is no text comes back readable."""
    store.apply([RecordTurn(turn(query=query))])
    assert store.turns.get("t1").query == query.replace("\x00", "").replace("\ud800", "?")
