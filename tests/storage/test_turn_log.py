"""Turn records, on both databases."""

from dataclasses import replace

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


def test_a_stored_turn_comes_back_equal_and_is_recorded_once(store):
    """The same id again is refused and does not advance the clock."""
    store.apply([RecordTurn(FULL)])
    assert store.turns.get("t1") == FULL
    with pytest.raises(StoreError):
        store.apply([RecordTurn(FULL)])
    assert store.walk.get_clock("default").turn == 1


def test_turns_are_numbered_and_found_by_id_and_run_in_their_namespace(store):
    """A run has its last turn; forgetting one namespace deletes only its turns."""
    for name, namespace, run in ("t1", "ann", "run"), ("t2", "ann", "run"), ("t3", "bob", None):
        turn = replace(FULL, id=name, namespace=namespace, run_id=run, clock=99)
        store.apply([RecordTurn(turn)])
    assert [store.turns.get(f"t{n}").clock for n in (1, 2, 3)] == [1, 2, 1]
    assert [store.walk.get_clock(name).turn for name in ("ann", "bob")] == [2, 1]
    assert (store.turns.latest("ann"), store.turns.latest("never seen")) == ("t2", None)
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
    store.apply([RecordTurn(replace(FULL, query=query))])
    assert store.turns.get("t1").query == query.replace("\x00", "").replace("\ud800", "?")
