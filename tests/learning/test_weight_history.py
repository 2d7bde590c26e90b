"""Explanations say which feedback moved an edge."""

import time

from crabpath_retrievers import Feedback
from crabpath_retrievers.cli.queries import explanation_table

AB, BA = ("a", "b", "co_used"), ("b", "a", "co_used")


def use_together(memory, host, numbers, namespace="default"):
    """Successes of these numbers, of two documents that were used together."""
    for number in numbers:
        turn = host.ask(namespace)
        given = Feedback(turn, 1.0, used=["a", "b"], feedback_id=f"{namespace}-{number}")
        assert memory.record(given).status == "applied"


def read_moves(memory, host, namespace="default"):
    """Feedback ids by edge, as the explanation of a new turn tells them."""
    explanation = memory.explain(host.ask(namespace))
    return {
        (edge.source, edge.target, edge.kind): [move.feedback_id for move in edge.moves]
        for reason in explanation.documents
        for edge in reason.moved
    }


def test_the_newest_five_moves_of_an_edge_are_explained(memory, host):
    """Newest first, with what each added and when, of the own namespace; undone, none."""
    assert read_moves(memory, host) == {}
    begun = time.time()
    use_together(memory, host, range(8))
    use_together(memory, host, range(3), "ada")
    found = read_moves(memory, host)
    newest = [f"default-{number}" for number in (7, 6, 5, 4, 3)]
    assert found.pop(AB, newest) == newest
    assert found.pop(BA, newest) == newest
    explanation = memory.explain(host.ask())
    (move, *_) = next(edge for r in explanation.documents for edge in r.moved).moves
    assert 0 < move.delta < 0.1
    assert begun <= move.created <= time.time()
    memory.undo("default-6")
    shown = {i for ids in read_moves(memory, host).values() for i in ids}
    assert shown == {f"default-{number}" for number in (7, 5, 4, 3, 2)}


def test_programs_and_people_read_moves(memory, host):
    """As plain data, and in the table of a terminal."""
    use_together(memory, host, range(3))
    explanation = memory.explain(host.ask())
    shown = [edge for d in explanation.to_dict()["documents"] for edge in d["moved"]]
    ids = {move["feedback_id"] for edge in shown for move in edge["moves"]}
    assert ids == {"default-1", "default-2"}
    assert {tuple(edge) for edge in shown} == {("source", "target", "kind", "moves")}
    routes = "\n".join(map(str, explanation_table(explanation).columns[2].cells))
    assert " by default-2, " in routes
    assert "+0." in routes
