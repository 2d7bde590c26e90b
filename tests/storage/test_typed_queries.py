"""Reads of edges by kind: those of the text with what was learned, and those of a namespace."""

import pytest

from crabpath_retrievers.core.changes import AdjustWeights, AdvanceClock, PutEdges, WeightDelta
from crabpath_retrievers.core.graph import Edge, EdgeKind

LINK, CAUSED = EdgeKind.LINK, EdgeKind.CAUSED_SUCCESS


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


def learn(store, source, target, kind, delta, namespace="default"):
    """Move one edge."""
    store.apply([AdjustWeights(namespace, (WeightDelta(source, target, kind, delta),))])


def test_edges_of_the_text_are_read_with_what_was_learned(store, keys):
    """Prior .5; plus .2 in the namespace that learned it, not in another."""
    a, b, _ = keys
    learn(store, a, b, LINK, 0.2)
    assert read(store, [a], [LINK]) == [(a, "b", "link", 0.7)]
    assert read(store, [a], [LINK], namespace="ada") == [(a, "b", "link", 0.5)]


def test_learned_edges_are_read_in_both_directions_in_one_batch(store, keys):
    """Seen from the node that was asked about; of the wanted kinds alone."""
    a, b, c = keys
    learn(store, a, c, CAUSED, 0.4)
    learn(store, b, c, CAUSED, -0.3)
    assert read(store, [a, b], [CAUSED]) == [
        (a, "c", "caused_success", 0.4),
        (b, "c", "caused_success", -0.3),
    ]
    assert read(store, [c], [CAUSED, LINK], "in") == [
        (c, "a", "caused_success", 0.4),
        (c, "b", "caused_success", -0.3),
        (c, "b", "link", 0.5),
    ]
    assert read(store, [a, b], [EdgeKind.TEMPORAL]) == []
    assert read(store, [a], [CAUSED], namespace="ada") == []
    assert read(store, [], [CAUSED]) == read(store, [a], []) == []


def test_weights_fade_to_their_floor(store, keys):
    """By one half-life: learned ones towards 0, those of the text towards .25."""
    a, b, c = keys
    learn(store, a, c, CAUSED, 0.4)
    learn(store, a, b, LINK, 0.2)
    store.apply([AdvanceClock("default", exponent=0.6931471805599453)])
    found = read(store, [a], [CAUSED, LINK])
    assert found == [(a, "b", "link", 0.475), (a, "c", "caused_success", 0.2)]
    standing = store.typed_edges.get_learned(store.walk.get_clock("default"), CAUSED)
    assert standing == {(a, c): pytest.approx(0.2)}


def test_what_stands_at_nothing_and_what_is_gone_is_left_out(store, keys, graph):
    """A weight taken back to 0, and an edge to a node that was removed."""
    a, b, c = keys
    learn(store, a, b, CAUSED, 0.4)
    learn(store, a, b, CAUSED, -0.4)
    learn(store, a, c, CAUSED, 0.4)
    graph.publish(removed=("c",))
    assert read(store, [a], [CAUSED]) == []


def test_more_nodes_than_one_statement_takes_are_read_in_parts(store, keys):
    """Unknown ones have no edges."""
    a, *_ = keys
    assert read(store, [*range(10_000, 13_000), a], [LINK]) == [(a, "b", "link", 0.5)]


def test_the_first_chunk_of_a_source_is_found(store, graph, make):
    """By position."""
    graph.publish(make("y", source="s", position=1), make("x", source="s", position=0))
    (key,) = graph.keys("x")
    assert store.typed_edges.first_chunks(["s", "unknown"]) == {"s": key}


def test_nothing_is_known_before_any_turn(store, keys):
    """An unseen namespace."""
    clock = store.walk.get_clock("nobody")
    assert store.typed_edges.used_before("nobody", 5, 0.0, turns=10, seconds=900.0) == []
    assert store.typed_edges.get_recent_credit(clock, 100) == []
    assert store.typed_edges.get_recent_usage(clock, 100) == []
    assert store.typed_edges.get_learned(clock, CAUSED) == {}


def test_kinds_of_the_overlay_are_not_doubled_by_edges(store, keys):
    """Each edge once, however its kind is stored."""
    a, b, _ = keys
    store.apply([PutEdges((Edge(a, b, EdgeKind.SIMILAR, 0.4, 0.4),))])
    learn(store, a, b, EdgeKind.CO_USED, 0.3)
    assert read(store, [a], list(EdgeKind)) == [
        (a, "b", "co_used", 0.3),
        (a, "b", "link", 0.5),
        (a, "b", "similar", 0.4),
    ]
