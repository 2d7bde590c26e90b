"""Explanations tell which feedback moved an edge; on both databases."""

import time

from crabpath_retrievers import Feedback
from crabpath_retrievers.cli.queries import explanation_table


def together(memory, host, number, namespace="default"):
    """Success number n of two documents that were used together."""
    turn = host.ask(namespace)
    given = Feedback(turn, 1.0, used=["a", "b"], feedback_id=f"{namespace}-{number}")
    assert memory.record(given).status == "applied"


def moved(memory, host, namespace="default"):
    """Feedback ids by edge, as the explanation of a new turn tells them."""
    explanation = memory.explain(host.ask(namespace))
    return {
        (edge.source, edge.target, edge.kind): [move.feedback_id for move in edge.moves]
        for reason in explanation.documents
        for edge in reason.moved
    }


def test_the_newest_five_moves_of_an_edge_are_told(memory, host):
    begun = time.time()
    for number in range(8):
        together(memory, host, number)
    found = moved(memory, host)
    newest = [f"default-{number}" for number in (7, 6, 5, 4, 3)]
    assert found.pop(("a", "b", "co_used"), newest) == newest
    assert found.pop(("b", "a", "co_used"), newest) == newest
    explanation = memory.explain(host.ask())
    (move, *_) = next(edge for r in explanation.documents for edge in r.moved).moves
    assert 0 < move.delta < 0.1
    assert begun <= move.created <= time.time()


def test_an_edge_that_nobody_moved_tells_nothing(memory, host):
    assert moved(memory, host) == {}


def test_only_feedback_of_the_own_namespace_is_told(memory, host):
    for number in range(3):
        together(memory, host, number, "ada")
        together(memory, host, number, "grace")
    told = {i for ids in moved(memory, host, "ada").values() for i in ids}
    assert told
    assert {i.split("-")[0] for i in told} == {"ada"}
    assert moved(memory, host, "never") == {}


def test_undone_feedback_is_told_no_more(memory, host):
    for number in range(4):
        together(memory, host, number)
    memory.undo("default-2")
    told = {i for ids in moved(memory, host).values() for i in ids}
    assert told == {"default-1", "default-3"}


def test_programs_and_people_are_told(memory, host):
    for number in range(3):
        together(memory, host, number)
    explanation = memory.explain(host.ask())
    told = [edge for d in explanation.to_dict()["documents"] for edge in d["moved"]]
    assert {move["feedback_id"] for edge in told for move in edge["moves"]} == {
        "default-1",
        "default-2",
    }
    assert {tuple(edge) for edge in told} == {("source", "target", "kind", "moves")}
    routes = "\n".join(map(str, explanation_table(explanation).columns[2].cells))
    assert " by default-2, " in routes
    assert "+0." in routes


def test_moves_are_read_by_edge(memory, host):
    history = memory.store.history
    together(memory, host, 0)
    together(memory, host, 1)
    edges = [("a", "b", "co_used"), ("b", "a", "co_used"), ("a", "c", "co_used")]
    found = history.get_weight_changes("default", edges, 5)
    assert {edge: [m.feedback_id for m in known] for edge, known in found.items()} == {
        ("a", "b", "co_used"): ["default-1"],
        ("b", "a", "co_used"): ["default-1"],
    }
    assert history.get_weight_changes("default", edges, 0) == {}
    assert history.get_weight_changes("default", [], 5) == {}
    assert history.get_weight_changes("default", [("x", "y", "co_used")], 5) == {}
