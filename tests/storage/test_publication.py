"""A node's way into the store and out of it, on both databases."""

import pytest
import tables
from tables import read_journal

from crabpath_retrievers import Edge, EdgeKind
from crabpath_retrievers.core.records import LEARNED_KINDS
from crabpath_retrievers.errors import StoreError
from tests.seams import make_change


def test_staged_nodes_are_invisible_until_published_and_wait_for_edges(store, graph, make):
    """They are kept whole; publishing shows them, and their edges finish the ingest."""
    node = make("a", "hidden words", title="Köln", metadata={"n": [1, None]}, position=3)
    store.apply(
        [make_change("stage_nodes", (node, make("b"))), make_change("remove_documents", ("b",))]
    )  # b never appears
    (staged,) = store.catalog.get_staged()
    for name in ("id", "content", "title", "position", "metadata", "digest"):
        assert getattr(staged, name) == getattr(node, name)
    assert store.catalog.documents(["a"]) == {}
    assert store.fulltext.find_phrases([["hidden"]], 5)[0] == []
    assert store.catalog.has_unfinished_ingest()
    store.apply([make_change("publish_staged")])
    assert store.catalog.documents(["a"])["a"].content == "hidden words"
    assert len(store.fulltext.find_phrases([["hidden"]], 5)[0]) == 1
    assert store.catalog.all_ids() == ["a"]
    assert store.catalog.get_unlinked_keys() == graph.keys("a")
    store.apply(
        [
            make_change("put_edges", (), tuple(graph.keys("a"))),
            make_change("confirm_index_deletions", ("b",)),
        ]
    )
    assert not store.catalog.has_unfinished_ingest()


def test_a_replaced_node_keeps_its_key_and_what_was_learned(store, graph, make):
    """Edges read off the old text go; those that usage made stay, as does what was learned."""
    a, b = graph.publish(make("a", "old text"), make("b"))
    for kind in (EdgeKind.MENTION, EdgeKind.LINK, *LEARNED_KINDS):
        graph.join(a, b, kind)
    store.apply(
        [
            make_change(
                "AdjustWeights", "default", (make_change("WeightDelta", a, b, EdgeKind.LINK, 0.2),)
            )
        ]
    )
    assert graph.publish(make("a", "new words")) == [a]
    clock = store.walk.get_clock("default")
    assert {p.kind for p in store.walk.get_outgoing_edges([a], clock).pointers} == LEARNED_KINDS
    graph.join(a, b)
    weights = {p.kind: p.weight for p in store.walk.get_outgoing_edges([a], clock).pointers}
    assert weights[EdgeKind.LINK] == pytest.approx(0.7)  # prior .5 + .2
    assert store.fulltext.find_phrases([["old"]], 5)[0] == []
    assert store.fulltext.find_phrases([["new"]], 5)[0] == [a]


def test_removing_a_node_leaves_nothing_of_it(store, graph, make):
    """After removal every table but the journal and the trash is as before the node came."""
    graph.publish(make("a", "one two", title="Stays"))
    before = graph.contents(without=("journal", "index_deletions"))
    frequencies = store.walk.read_facts("a", ["one", "two", "three"])
    new = make("b", "two three", title="Goes Away", addresses=("x",), references=("y",))
    (b,) = graph.publish(new)
    (a,) = graph.keys("a")
    graph.join(a, b, EdgeKind.MENTION)
    graph.join(b, a, EdgeKind.MENTION)
    store.apply(
        [
            make_change(
                "AdjustWeights",
                "default",
                (make_change("WeightDelta", a, b, EdgeKind.MENTION, 0.1),),
            )
        ]
    )
    store.apply([make_change("remove_documents", ("b",))])
    after = graph.contents(without=("journal", "index_deletions"))
    assert after.pop(tables.namespaces.name) != before.pop(tables.namespaces.name)  # it learned
    assert after == before
    assert store.walk.read_facts("a", ["one", "two", "three"])[1:] == frequencies[1:]
    assert store.fulltext.find_phrases([["three"]], 5)[0] == []


def test_moved_nodes_and_neighbours_of_removed_ones_wait_for_edges(store, graph, make):
    """Whoever got another neighbour is linked again."""
    nodes = [make(i, i, source="s", document="s", position=p) for p, i in enumerate("abc")]
    a, b, c = graph.publish(*nodes)
    graph.join(a, b, EdgeKind.SIBLING)
    graph.join(b, c, EdgeKind.SIBLING)
    store.apply([make_change("remove_documents", ("b",))])
    # Only b → c was joined, so only c stood beside b.
    assert store.catalog.get_unlinked_keys() == [c]
    store.apply([make_change("put_edges", (), (c,)), make_change("move_nodes", (("c", 1),))])
    assert store.links.in_order(["s"]) == {"s": [a, c]}
    assert store.catalog.get_unlinked_keys() == [c]


def test_a_failing_change_takes_the_whole_call_back(store, graph, make):
    """Nothing of an apply is kept when a change in its middle cannot be carried out."""
    graph.publish(make("a"))
    before = graph.contents()
    with pytest.raises(TypeError, match="unknown change str"):
        store.apply(
            [
                make_change("remove_documents", ("a",)),
                "no change",
                make_change("put_meta", {"x": "y"}),
            ]
        )
    with pytest.raises(StoreError):
        store.apply(
            [make_change("remove_documents", ("a",)), make_change("put_meta", {"x": None})]
        )  # NOT NULL
    assert graph.contents() == before


def test_edges_of_vanished_nodes_and_to_oneself_are_skipped(store, graph, make):
    a, b = graph.publish(make("a"), make("b"))
    loose = [Edge(a, t, EdgeKind.LINK, 0.5, 0.5) for t in (a, b, b + 1)]
    store.apply([make_change("put_edges", tuple(loose))])
    pointers = store.walk.get_outgoing_edges([a], store.walk.get_clock("default")).pointers
    assert [p.target.key for p in pointers] == [b]


def test_the_journal_never_holds_text(store, graph, make):
    """Ids of what came and went are journaled, contents and titles are not."""
    graph.publish(make("a", "secret words", title="Secret Title"))
    store.apply([make_change("remove_documents", ("a",))])
    assert {entry["change"] for entry in read_journal(store)} == {"publish", "remove"}
    assert "ecret" not in str(read_journal(store))


def test_ids_with_any_characters_are_found(store, graph, make):
    """Quotes, braces and words of SQL in ids are characters, in lists of any length."""
    ids = ['a"b', "c\\d", "{e,f}", "NULL", "g'h", "%s", " i ", "j\nk"]
    graph.publish(*map(make, ids))
    for count in range(len(ids) + 1):
        assert {head.id for head in store.walk.get_nodes(ids[:count])} == {*ids[:count]}
    assert store.walk.get_nodes(["{}", '"', "a"]) == []


def test_of_equal_edges_of_one_batch_the_last_counts(store, graph, make):
    """However many edges there are."""
    a, b = graph.publish(make("a"), make("b"))
    weights = [*range(1000), *range(999, -1, -1)]
    edges = [Edge(a, b, EdgeKind.LINK, weight / 1000, 0.0) for weight in weights]
    store.apply([make_change("put_edges", tuple(edges))])
    assert graph.weight(a, b) == 0.0
