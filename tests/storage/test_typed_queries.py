"""Reads of edges by kind: those of the text with what was learned, and those of a namespace."""

import pytest

from crabpath_retrievers.core.changes import AdjustWeights, PutEdges, WeightDelta
from crabpath_retrievers.core.graph import Edge, EdgeKind

LINK, CO_USED, SIMILAR = EdgeKind.LINK, EdgeKind.CO_USED, EdgeKind.SIMILAR


@pytest.fixture
def keys(graph, make):
    """Three nodes: a links to b, b to c."""
    found = graph.publish(make("a"), make("b"), make("c"))
    graph.join(found[0], found[1])
    graph.join(found[1], found[2])
    return found


def read(store, keys, kinds, direction="out", namespace="default"):
    """Edges as ``(near, id, kind, weight)``."""
    found = store.typed_edges.edges(keys, store.walk.get_clock(namespace), kinds, direction)
    return sorted((e.near, e.id, e.kind.label, pytest.approx(e.weight)) for e in found)


def learn(store, source, target, kind, delta):
    """Move one edge of the default namespace."""
    store.apply([AdjustWeights("default", (WeightDelta(source, target, kind, delta),))])


def test_edges_are_read_with_what_was_learned_in_both_directions(store, keys):
    """Each once, of the wanted kinds alone, seen from the node that was asked about."""
    a, b, c = keys
    store.apply([PutEdges((Edge(a, b, SIMILAR, 0.4, 0.4),))])
    for edge in (a, b, LINK, 0.2), (a, c, CO_USED, 0.4), (b, c, CO_USED, -0.3):
        learn(store, *edge)
    used = [(a, "c", "co_used", 0.4), (b, "c", "co_used", -0.3)]
    similar = (a, "b", "similar", 0.4)
    assert read(store, [a], list(EdgeKind)) == sorted([(a, "b", "link", 0.7), similar, used[0]])
    assert read(store, [a], list(EdgeKind), namespace="ada") == [(a, "b", "link", 0.5), similar]
    assert read(store, [a, b], [CO_USED]) == used
    assert read(store, [c], [CO_USED, LINK], "in") == [
        (c, "a", "co_used", 0.4),
        (c, "b", "co_used", -0.3),
        (c, "b", "link", 0.5),
    ]
    assert read(store, [a, b], [EdgeKind.TEMPORAL]) == read(store, [], [CO_USED]) == []
    assert read(store, [a], []) == []


def test_what_stands_at_nothing_and_what_is_gone_is_left_out(store, keys, graph):
    """A weight taken back to 0, an edge to a removed node, and nodes that never were."""
    a, b, c = keys
    for edge in (a, b, CO_USED, 0.4), (a, b, CO_USED, -0.4), (a, c, CO_USED, 0.4):
        learn(store, *edge)
    graph.publish(removed=("c",))
    unknown = range(10_000, 13_000)  # more than one statement takes
    assert read(store, [*unknown, a], [CO_USED, LINK]) == [(a, "b", "link", 0.5)]


def test_the_first_chunk_of_a_source_is_found(store, graph, make):
    graph.publish(make("y", source="s", position=1), make("x", source="s", position=0))
    (key,) = graph.keys("x")
    assert store.typed_edges.first_chunks(["s", "unknown"]) == {"s": key}
