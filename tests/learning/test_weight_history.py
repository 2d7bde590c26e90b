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
    """Newest first, with what each added and when; before any feedback, and undone, none."""
    assert read_moves(memory, host) == {}
    begun = time.time()
    use_together(memory, host, range(8))
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


def test_only_feedback_of_the_own_namespace_is_explained(memory, host):
    for namespace in ("ada", "grace"):
        use_together(memory, host, range(3), namespace)
    shown = {i for ids in read_moves(memory, host, "ada").values() for i in ids}
    assert {i.split("-")[0] for i in shown} == {"ada"}
    assert read_moves(memory, host, "never") == {}


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


def test_moves_are_read_by_edge(memory, host):
    """Of those that are asked for, and no more of each than wanted."""
    use_together(memory, host, range(2))
    read = memory.store.history.get_weight_changes
    edges = [AB, BA, ("a", "c", "co_used")]
    found = {
        edge: [m.feedback_id for m in known] for edge, known in read("default", edges, 5).items()
    }
    assert found == {AB: ["default-1"], BA: ["default-1"]}
    assert read("default", edges, 0) == read("default", [], 5) == {}
    assert read("default", [("x", "y", "co_used")], 5) == {}
