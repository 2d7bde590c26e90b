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


def make_turn(
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


def test_a_stored_turn_comes_back_equal_and_is_recorded_once(store):
    """The same id again is refused and does not advance the clock."""
    assert Turn.from_dict(make_turn().to_dict()) == make_turn()
    store.apply([RecordTurn(make_turn())])
    assert store.turns.get("t1") == make_turn()
    with pytest.raises(StoreError):
        store.apply([RecordTurn(make_turn())])
    assert store.walk.get_clock("default").turn == 1


def test_recording_advances_the_clock_of_its_namespace(store):
    """Every turn counts once, and its record carries the number that the store gave it."""
    for number in (1, 2, 3):
        store.apply([RecordTurn(make_turn(f"t{number}", clock=99))])
    store.apply([RecordTurn(make_turn("x", "other"))])
    assert store.walk.get_clock("default").turn == 3
    assert store.walk.get_clock("other").turn == 1
    assert [store.turns.get(f"t{n}").clock for n in (1, 2, 3)] == [1, 2, 3]
    assert store.turns.latest("default") == "t3"
    assert store.turns.latest("never seen") is None


def test_turns_are_found_by_id_and_run_in_their_namespace(store):
    """A run has its last turn; forgetting one namespace deletes only its turns."""
    runs = [("t1", "ann", "run"), ("t2", "ann", "run"), ("t3", "bob", None)]
    store.apply([RecordTurn(make_turn(i, namespace, run_id=run)) for i, namespace, run in runs])
    assert store.turns.get("run").id == store.turns.get("run", namespace="ann").id == "t2"
    for wanted in ("t1", "run"):
        with pytest.raises(NotFoundError, match="no turn"):
            store.turns.get(wanted, namespace="bob")
    store.apply([ForgetNamespace("ann")])
    for gone in ("t1", "run", "never recorded"):
        with pytest.raises(NotFoundError):
            store.turns.get(gone)
    assert store.turns.get("t3").namespace == "bob"


@pytest.mark.parametrize("query", ["nul \x00 inside", "lone \ud800 surrogate", "x" * 100_000])
def test_odd_queries_can_be_recorded(store, query):
    """No query text makes the record fail, and text that is no text comes back readable."""
    store.apply([RecordTurn(make_turn(query=query))])
    assert store.turns.get("t1").query == query.replace("\x00", "").replace("\ud800", "?")
