"""What health is measured on, read from a tiny graph; and how reports are kept."""

import pytest

from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AdjustWeights,
    AdvanceClock,
    ForgetNamespace,
    RecordTurn,
    WeightDelta,
)
from crabpath_retrievers.core.changes.maintenance import RecordHealth
from crabpath_retrievers.core.changes.notes import KeepNote
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.turn import ReturnedDocument, SeedRecord, Turn
from crabpath_retrievers.storage.read.health import (
    CorpusSize,
    CoUsedEdge,
    EdgeGroup,
    SampledChunk,
    TurnFacts,
)

ALL = 10_000


@pytest.fixture
def keys(graph, make):
    """Chunks a and a2 of one document, b and c of two others; a leads to a2 and b."""
    a, a2, b, c = graph.publish(
        make("a"), make("a2", document="a", source="a"), make("b"), make("c")
    )
    graph.join(a, a2, EdgeKind.SIBLING)
    graph.join(a, b)
    return {"a": a, "a2": a2, "b": b, "c": c}


def learn(store, keys, *deltas, namespace="ann"):
    """Weights of one namespace, as (source, target, kind, delta)."""
    moved = tuple(WeightDelta(keys[x], keys.get(y, 0), kind, by) for x, y, kind, by in deltas)
    store.apply([AdvanceClock(namespace, turns=1), AdjustWeights(namespace, moved)])
    return store.walk.get_clock(namespace).key


def test_the_corpus_is_counted_without_notes(store, keys, make):
    """Each text has two words; its title is empty."""
    store.apply([KeepNote("ann", make("n", "a note"), "teaching")])
    assert store.health.corpus() == CorpusSize(4, 8)
    assert sorted(store.health.sample(ALL)) == sorted(keys.values())


def test_an_empty_store(store):
    """There is nothing, and nothing fails."""
    assert store.health.corpus() == CorpusSize(0, 0)
    assert store.health.sample(ALL) == []
    assert store.health.describe_sample([], 0) == []
    edges = store.health.edges
    assert edges.count_structural([], 0) == []
    assert edges.sample_learned(0, ALL) == ([], 1.0)
    assert edges.count_pairs(0, ALL) == ((0, 0), 1.0)
    assert (edges.get_split_parts(), edges.get_co_used(0, []), store.health.turns(0, 5)) == (
        {},
        [],
        [],
    )


def test_a_sample_is_even_and_always_the_same(store, graph, make):
    """Also where keys are missing: a third of the nodes is gone."""
    graph.publish(*(make(f"n{i}") for i in range(300)))
    graph.publish(removed=tuple(f"n{i}" for i in range(100)))
    found = store.health.sample(50)
    assert found == store.health.sample(50)
    assert 30 <= len(found) <= 70
    assert len(set(found)) == len(found)
    low = sum(key <= graph.keys("n200")[0] for key in found)
    assert 0.3 <= low / len(found) <= 0.7


def test_isolated_chunks(store, keys):
    """Chunk c has no pointer, until Ann learns one; typed edges, as Bob's, are not walked."""

    def alone(key):
        return {n.id for n in store.health.describe_sample(list(keys.values()), key) if n.isolated}

    assert alone(0) == {"c"}
    ann = learn(store, keys, ("b", "c", EdgeKind.CO_USED, 0.4))
    bob = learn(store, keys, ("b", "c", EdgeKind.TEMPORAL, 0.4), namespace="bob")
    assert (alone(ann), alone(bob)) == (set(), {"c"})
    assert store.health.describe_sample([keys["a2"]], 0) == [
        SampledChunk("a2", "a", isolated=False)
    ]


def test_edges_of_the_text_without_those_that_were_learned(store, keys):
    """Alike ones together; one that Ann has moved is hers alone."""
    found = store.health.edges.count_structural(list(keys.values()), 0)
    row = EdgeGroup(0.5, 0.25, 0.0, 0, crossing=True, number=1)
    assert sorted(found) == [row._replace(crossing=False), row]
    ann = learn(store, keys, ("a", "b", EdgeKind.LINK, 0.2))
    assert store.health.edges.count_structural(list(keys.values()), ann) == [
        row._replace(crossing=False)
    ]
    assert store.health.edges.count_structural([keys["b"]], 0) == []


def test_learned_weights_with_floor_and_crossing(store, keys, make):
    """STOP and typed edges are not walked; a note is no document; Bob's are his."""
    store.apply([KeepNote("ann", make("n", "a note"), "teaching")])
    (note,) = store.learned.keys(["n"]).values()
    ann = learn(
        store,
        {**keys, "n": note},
        ("a", "b", EdgeKind.LINK, 0.2),
        ("a", "a2", EdgeKind.CO_USED, 0.4),
        ("n", "b", EdgeKind.TAUGHT, 0.3),
        ("a", "STOP", EdgeKind.STOP, 0.1),
        ("a", "b", EdgeKind.TEMPORAL, 0.1),
    )
    bob = learn(store, keys, ("a", "b", EdgeKind.CO_USED, 0.9), namespace="bob")
    found, share = store.health.edges.sample_learned(ann, ALL)
    assert share == 1.0
    assert {(round(r.weight, 6), r.floor, r.crossing) for r in found} == {
        (0.7, 0.25, True),
        (0.4, 0.0, False),
        (0.3, 0.0, None),
    }
    assert [r.weight for r in store.health.edges.sample_learned(bob, ALL).found] == [0.9]


def test_only_so_many_learned_weights_are_read(store, graph, make):
    """A tenth of them, known as such; the same rows every time."""
    found = graph.publish(*(make(f"n{i}") for i in range(200)))
    deltas = tuple(WeightDelta(k, found[0], EdgeKind.CO_USED, 0.4) for k in found[1:])
    pairs = tuple((k, found[0], EdgeKind.CO_USED, 2.0) for k in found[1:])
    store.apply([AdjustWeights("ann", deltas[:100]), AddPairCounts("ann", pairs)])
    ann = store.walk.get_clock("ann").key
    rows, share = store.health.edges.sample_learned(ann, 20)
    assert share == pytest.approx(0.2)
    assert len(rows) == pytest.approx(20, abs=8)
    (pairs_read, promoted), share = store.health.edges.count_pairs(ann, 50)
    assert share == pytest.approx(50 / 199)
    assert pairs_read == pytest.approx(50, abs=12)
    assert promoted / pairs_read == pytest.approx(100 / 199, abs=0.15)


def test_pairs_that_became_edges(store, keys):
    """One of two; counts of blame are none."""
    ann = learn(store, keys, ("a", "b", EdgeKind.CO_USED, 0.4))
    together = (
        (keys["a"], keys["b"], EdgeKind.CO_USED, 2.0),
        (keys["a"], keys["c"], EdgeKind.CO_USED, 1.0),
    )
    blame = ((keys["a"], keys["c"], EdgeKind.INHIBITS, 3.0),)
    store.apply([AddPairCounts("ann", together + blame), AddPairCounts("bob", blame)])
    assert store.health.edges.count_pairs(ann, ALL).found == (2, 1)
    assert store.health.edges.count_pairs(store.walk.get_clock("bob").key, ALL).found == (0, 0)


def test_pieces_of_nodes_that_were_split(store, graph, make):
    """They say what they were split off, until their text is read again; pointers by namespace."""
    off = {"x1": "x", "x2": "x", "y1": "y", "z": 5}
    keys = graph.publish(*(make(n, metadata={"split_from": of}) for n, of in off.items()))
    names = dict(zip(off, keys, strict=True))
    edges = store.health.edges
    assert edges.get_split_parts() == {names["x1"]: "x", names["x2"]: "x", names["y1"]: "y"}
    kind = EdgeKind.CO_USED
    ann = learn(store, names, ("x1", "x2", kind, 0.4), ("z", "x1", kind, 0.4))
    assert edges.get_co_used(ann, edges.get_split_parts()) == [
        CoUsedEdge(names["x1"], names["x2"], 0.4, 0.0, 0)
    ]
    assert edges.get_co_used(0, edges.get_split_parts()) == []
    graph.publish(make("x1"))
    assert edges.get_split_parts() == {names["x2"]: "x", names["y1"]: "y"}


def turn(number, namespace="ann", visited=("a", "b", "c"), returned=("a", "b")):
    """A turn that began at a."""
    seed = SeedRecord("a", 1.0, 1.0, 0.0, 0.0)
    found = tuple(ReturnedDocument(node, 0.5, "seed", (), {}) for node in returned)
    return RecordTurn(
        Turn(f"t{namespace}{number}", namespace, 0, 1.0, "?", (seed,), (), visited, found, (), {})
    )


def test_the_latest_turns_of_one_namespace(store, keys):
    """Two nodes were entered by pointers; two documents of two words came back."""
    store.apply([turn(1, visited=("a",)), turn(2), turn(1, "bob"), turn(3, returned=("a", "gone"))])
    ann = store.walk.get_clock("ann").key
    assert store.health.turns(ann, 2) == [TurnFacts(2, 2, 2), TurnFacts(2, 2, 4)]
    assert len(store.health.turns(ann, ALL)) == 3


def put(store, number, namespace="ann", keep=3):
    """A report with a number."""
    store.apply([RecordHealth(namespace, number, float(number), {"number": number}, keep)])


def numbers(store, namespace="ann", limit=ALL):
    """Those of the reports that are kept."""
    return [kept["number"] for kept in store.health.history(namespace, limit)]


def test_the_latest_reports_are_kept(store):
    """As many as are wanted, of each namespace; they go with it."""
    store.apply([AdvanceClock("ann"), AdvanceClock("bob")])
    for number in range(5):
        put(store, number)
    put(store, 9, "bob")
    assert (numbers(store), numbers(store, limit=2), numbers(store, "bob")) == (
        [2, 3, 4],
        [3, 4],
        [9],
    )
    store.apply([ForgetNamespace("ann")])
    assert (numbers(store), numbers(store, "bob")) == ([], [9])


def test_a_report_makes_no_namespace(store):
    """Looking at one that nobody uses leaves nothing behind."""
    put(store, 1)
    assert numbers(store) == []
    assert store.catalog.statistics()["namespaces"] == {}


def test_a_report_that_is_no_json_is_not_kept(store):
    """NaN would make the table unreadable to others."""
    store.apply([AdvanceClock("ann")])
    with pytest.raises(ValueError, match="JSON compliant"):
        store.apply([RecordHealth("ann", 1, 1.0, {"value": float("nan")}, 3)])
    assert store.health.history("ann", 1) == []


def test_parts_of_split_documents_are_found(store, graph, make):
    """By the id of the whole in their metadata."""
    graph.publish(make("x1", metadata={"split_from": "x"}))
    assert list(store.health.edges.get_split_parts().values()) == ["x"]
