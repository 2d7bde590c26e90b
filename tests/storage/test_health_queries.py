"""What health is measured on, read from a tiny graph."""

import pytest

from crabpath_retrievers import EdgeKind, ReturnedDocument, SeedRecord, Turn
from crabpath_retrievers.core.records import StoredWeight
from crabpath_retrievers.parts.operation.maintenance import (
    EdgeGroup,
    HealthQueries,
    TurnFacts,
)
from tests.seams import make_change

ALL = 10_000
CO_USED = EdgeKind.CO_USED


@pytest.fixture
def keys(graph, make):
    """Chunks a and a2 of one document, b and c of two others, and a note; a leads to a2 and b."""
    a, a2, b, c = graph.publish(
        make("a"), make("a2", document="a", source="a"), make("b"), make("c")
    )
    graph.join(a, a2, EdgeKind.SIBLING)
    graph.join(a, b)
    graph.store.apply([make_change("KeepNote", "ann", make("n", "a note"), "teaching")])
    ann = graph.store.walk.get_clock("ann").key
    (note,) = graph.store.learned.keys(["n"], ann).values()
    return {"a": a, "a2": a2, "b": b, "c": c, "n": note}


def learn(store, keys, *deltas, namespace="ann"):
    """Weights of one namespace, as (source, target, kind, delta)."""
    moved = tuple(
        make_change("WeightDelta", keys[x], keys.get(y, 0), kind, by) for x, y, kind, by in deltas
    )
    store.apply(
        [
            make_change("advance_clock", namespace, turns=1),
            make_change("AdjustWeights", namespace, moved),
        ]
    )
    return store.walk.get_clock(namespace).key


def test_chunks_are_counted_and_some_are_isolated(store, keys):
    """Without notes; until Ann learns a pointer nothing leads to c. Typed edges are not walked."""
    chunks = [keys[name] for name in ("a", "a2", "b", "c")]
    assert HealthQueries(store).corpus() == (4, 8)  # two words each
    assert sorted(HealthQueries(store).sample(ALL)) == sorted(chunks)

    def find_isolated(namespace):
        return {n.id for n in HealthQueries(store).describe_sample(chunks, namespace) if n.isolated}

    assert find_isolated(0) == {"c"}
    ann = learn(store, keys, ("b", "c", CO_USED, 0.4))
    bob = learn(store, keys, ("b", "c", EdgeKind.TEMPORAL, 0.4), namespace="bob")
    assert (find_isolated(ann), find_isolated(bob)) == (set(), {"c"})


def test_samples_are_even_and_always_the_same(store, graph, make):
    """Of nodes, also where keys are missing; of learned weights and of pairs, with the share."""
    nodes = graph.publish(*(make(f"n{i}") for i in range(300)))
    deltas = tuple(make_change("WeightDelta", k, nodes[0], CO_USED, 0.4) for k in nodes[1:101])
    pairs = tuple((k, nodes[0], CO_USED, 2.0) for k in nodes[1:200])
    store.apply(
        [make_change("AdjustWeights", "ann", deltas), make_change("AddPairCounts", "ann", pairs)]
    )
    ann, edges = store.walk.get_clock("ann").key, HealthQueries(store)
    rows, share = edges.sample_learned(ann, 20)
    assert share == pytest.approx(0.2)
    assert len(rows) == pytest.approx(20, abs=8)
    counted, promoted, share = edges.count_pairs(ann, 50)
    assert share == pytest.approx(50 / 199)
    assert counted == pytest.approx(50, abs=12)
    assert promoted / counted == pytest.approx(100 / 199, abs=0.15)
    graph.publish(removed=tuple(f"n{i}" for i in range(100)))
    found = HealthQueries(store).sample(50)
    assert found == HealthQueries(store).sample(50)
    assert 30 <= len(found) == len(set(found)) <= 70
    assert 0.3 <= sum(key <= nodes[200] for key in found) / len(found) <= 0.7


def test_edges_of_the_text_and_those_that_were_learned(store, keys):
    """A moved edge is learned; STOP and typed edges are not walked; a note crosses nothing."""
    edges, nodes = HealthQueries(store), list(keys.values())
    row = EdgeGroup(StoredWeight(0.5, 0.0, 0.25), crossing=True, number=1)
    assert sorted(edges.count_structural(nodes, 0)) == [row._replace(crossing=False), row]
    assert edges.count_structural([keys["b"]], 0) == []
    ann = learn(
        store,
        keys,
        ("a", "b", EdgeKind.LINK, 0.2),
        ("a", "a2", CO_USED, 0.4),
        ("n", "b", EdgeKind.TAUGHT, 0.3),
        ("a", "STOP", EdgeKind.STOP, 0.1),
        ("a", "b", EdgeKind.TEMPORAL, 0.1),
    )
    bob = learn(store, keys, ("a", "b", CO_USED, 0.9), namespace="bob")
    assert edges.count_structural(nodes, ann) == [row._replace(crossing=False)]
    found, share = edges.sample_learned(ann, ALL)
    assert share == 1.0
    assert {(round(r.stored.weight, 6), r.stored.floor, r.crossing) for r in found} == {
        (0.7, 0.25, True),
        (0.4, 0.0, False),
        (0.3, 0.0, None),
    }
    assert [r.stored.weight for r in edges.sample_learned(bob, ALL)[0]] == [0.9]


@pytest.mark.slow
def test_the_latest_turns_of_one_namespace(store, keys):
    """Two nodes were entered by pointers; documents of two words came back."""

    def record(number, namespace="ann", visited=("a", "b", "c"), returned=("a", "b")):
        seed = SeedRecord("a", 1.0, 1.0, 0.0, 0.0)
        found = tuple(ReturnedDocument(node, 0.5, "seed", (), {}) for node in returned)
        name = f"t{namespace}{number}"
        turn = Turn(name, namespace, 0, 1.0, "?", (seed,), (), visited, found, (), {})
        store.apply([make_change("RecordTurn", turn)])

    record(1, visited=("a",))
    record(2)
    record(1, "bob")
    record(3, returned=("a", "gone"))
    ann = store.walk.get_clock("ann").key
    assert HealthQueries(store).turns(ann, 2) == [TurnFacts(2, 2, 2), TurnFacts(2, 2, 4)]
    assert len(HealthQueries(store).turns(ann, ALL)) == 3
