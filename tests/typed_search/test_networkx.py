"""The graph as networkx sees it."""

import sys

import pytest

from crabpath_retrievers import MissingExtraError


def test_the_graph_of_a_namespace(memory, graph, join, namespace):
    """All that it sees: chunks with titles, its own notes, edges by type with their weights."""
    join(("d1", "d2", 0.4), ("d2", "d1", -0.9))
    join(("d1", "d2", 0.6), kind="temporal")
    note = memory.teach("Ask Ann.", title="Ann", related=["d3"], namespace=namespace)
    whole = graph.to_networkx()
    assert {f"d{n}" for n in range(80)} | {note} == set(whole)
    assert whole.nodes[note] == {"title": "Ann"}
    assert whole["d1"]["d2"]["temporal"]["kind"] == "temporal"
    assert whole["d1"]["d2"]["caused_success"]["weight"] == pytest.approx(0.4)
    for node in ("d1", "d2", note):
        edges = [
            (to, kind, data["weight"])
            for _, to, kind, data in whole.edges(node, keys=True, data=True)
        ]
        listed = [(to, kind, pytest.approx(weight)) for to, kind, weight in graph.neighbors(node)]
        assert sorted(edges) == sorted(listed, key=lambda edge: edge[:2])
    assert {kind for _, _, kind in graph.to_networkx("temporal").edges(keys=True)} == {"temporal"}
    assert set(memory.graph.to_networkx(namespace="nobody")) == set(whole) - {note}


def test_it_says_what_to_install(memory, monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"crabpath-retrievers\[graph\]"):
        memory.graph.to_networkx()
