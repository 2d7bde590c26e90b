"""What a namespace learns on top of the shared graph, and how it forgets; on both databases."""

import math
import uuid
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import overlay, turns, weight_changes

from crabpath_retrievers.core.changes import (
    AdjustWeights,
    AdvanceClock,
    ForgetNamespace,
    PutEdges,
    RemoveNodes,
    WeightDelta,
)
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.storage import sql_tools
from crabpath_retrievers.storage.read.walk import Clock

HALF = math.log(2)  # decay exponent after which half of the distance to the floor is left
LINK, CO_USED = EdgeKind.LINK, EdgeKind.CO_USED


@pytest.fixture
def pair(graph, make) -> tuple[int, int]:
    """Two nodes with a link of prior 0.5 and floor 0.25 between them."""
    a, b = graph.publish(make("a"), make("b"))
    graph.join(a, b)
    return a, b


def adjust(store, pair, *deltas, namespace="default", kind=LINK):
    """Change the weight of the edge in one namespace."""
    moves = tuple(WeightDelta(*pair, kind, delta) for delta in deltas)
    store.apply([AdjustWeights(namespace, moves, "test")])


def age(store, namespace="default", **turns):
    """Let a namespace live for one half-life."""
    store.apply([AdvanceClock(namespace, exponent=HALF, **turns)])


def read_moves(store):
    """Kind, cause, delta and mark of every move, in order."""
    names = ("kind", "cause", "delta", "decay_at")
    columns = [weight_changes.c[name] for name in names]
    with store.open_reader() as connection:
        return connection.execute(sa.select(*columns).order_by(weight_changes.c.sequence)).all()


@pytest.fixture
def count_statements(store, monkeypatch):
    """Runs something; returns how many statements it took, on both ways to the database."""

    def count(action):
        statements, plain = [], sql_tools.open_driver_cursor

        @contextmanager
        def counted(connection):
            with plain(connection) as cursor:
                statements.append(cursor)
                yield cursor

        def listen(*values):
            statements.append(values[2])

        engines = {store._engine, store._reader}
        for engine in engines:
            sa.event.listen(engine, "before_cursor_execute", listen)
        with monkeypatch.context() as counting:
            counting.setattr(sql_tools, "open_driver_cursor", counted)
            action()
        for engine in engines:
            sa.event.remove(engine, "before_cursor_execute", listen)
        return len(statements)

    return count


def test_weights_belong_to_a_namespace_and_go_with_it(store, graph, pair):
    """Also what moved them and its clock; documents and other namespaces stay."""
    for namespace, delta in ("ann", 0.3), ("bob", -0.4):
        adjust(store, pair, delta, namespace=namespace)
        store.apply([AdvanceClock(namespace, turns=3)])
    assert graph.weight(*pair, "ann") == pytest.approx(0.8)
    assert graph.weight(*pair, "never seen") == 0.5
    store.apply([ForgetNamespace("ann"), ForgetNamespace("never seen")])
    assert graph.weight(*pair, "ann") == 0.5
    assert graph.weight(*pair, "bob") == pytest.approx(0.1)
    assert store.walk.get_clock("ann") == Clock(0, 0, 0.0)
    assert store.walk.get_clock("bob").turn == 3
    tables = graph.contents()
    assert [len(tables[t.name]) for t in (overlay, turns, weight_changes)] == [1, 0, 1]


def test_weights_decay_towards_the_floor_and_moves_are_kept(store, graph, pair):
    """A delta is added to what is left; moves have what was really moved, why and when."""
    adjust(store, pair, 0.3)  # .8, which is .55 above the floor
    age(store, turns=50)
    assert graph.weight(*pair) == pytest.approx(0.25 + 0.55 / 2)
    adjust(store, pair, 0.1)
    assert graph.weight(*pair) == pytest.approx(0.25 + 0.55 / 2 + 0.1)
    age(store, turns=50)
    left = 0.25 + (0.55 / 2 + 0.1) / 2
    assert graph.weight(*pair) == pytest.approx(left)
    assert store.walk.get_clock("default").turn == 100
    adjust(store, pair, 0.9)
    assert read_moves(store) == [
        (LINK.value, "test", pytest.approx(0.3), 0.0),
        (LINK.value, "test", pytest.approx(0.1), pytest.approx(HALF)),
        (LINK.value, "test", pytest.approx(1 - left), pytest.approx(2 * HALF)),
    ]


def test_edges_that_nobody_touched_decay_from_their_birth(store, graph, make):
    """A sibling edge fades from its prior to 0 with the turns since it was put there."""
    a, b = graph.publish(make("a"), make("b"))
    store.apply([AdvanceClock("default", exponent=5.0)])
    store.apply([PutEdges((Edge(a, b, EdgeKind.SIBLING, 0.4, 0.0),))])
    assert graph.weight(a, b) == pytest.approx(0.4)
    age(store)
    assert graph.weight(a, b) == pytest.approx(0.2)
    assert graph.weight(a, b, "younger") == pytest.approx(0.4)  # its own clock stands still


@pytest.mark.parametrize(
    ("deltas", "moved", "weight"),
    [
        ((0.9, 0.9), [0.5, 0.0], 1.0),
        ((-0.9, -0.9), [-0.9, -0.6], -1.0),
        ((0.4, 0.4, -0.2), [0.4, 0.1, -0.2], 0.8),
    ],
)
def test_deltas_add_up_within_the_bounds(store, graph, pair, deltas, moved, weight):
    """In one change as in several: each is clipped, and a move of its own."""
    adjust(store, pair, *deltas)
    for delta in deltas:
        adjust(store, pair, delta, namespace="other")
    assert graph.weight(*pair) == graph.weight(*pair, "other") == pytest.approx(weight)
    assert [row.delta for row in read_moves(store)] == pytest.approx(moved * 2)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deltas=st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=8), data=st.data())
def test_deltas_commute(store, graph, pair, deltas, data):
    """Away from the clip the order of adjustments does not matter: they add up."""
    orders = {uuid.uuid4().hex: deltas, uuid.uuid4().hex: data.draw(st.permutations(deltas))}
    for namespace, order in orders.items():
        adjust(store, pair, *order, namespace=namespace)
    first, second = (graph.weight(*pair, namespace) for namespace in orders)
    assert first == pytest.approx(second) == pytest.approx(0.5 + sum(deltas))


def test_the_weight_of_stop_is_learned_per_node_and_namespace(store, pair):
    """STOP is an edge to nowhere that starts at 0 and is reported apart from the pointers."""

    def read(namespace="default"):
        return store.walk.get_outgoing_edges(pair, store.walk.get_clock(namespace))

    adjust(store, (pair[0], 0), 0.25, kind=EdgeKind.STOP)
    assert read().stops == {pair[0]: pytest.approx(0.25)}
    assert [p.target.key for p in read().pointers] == [pair[1]]
    age(store)
    assert read().stops == {pair[0]: pytest.approx(0.125)}
    assert read("other").stops == {}


def test_statements_do_not_grow_with_the_number_of_edges(
    store, graph, make, pair, count_statements
):
    """A whole frontier is read in one; many weights move with as many as two do."""
    nodes = graph.publish(*(make(f"n{i}") for i in range(40)))
    store.apply([PutEdges(tuple(Edge(n, pair[0], LINK, 0.5, 0.25) for n in nodes))])
    clock, frontiers = store.walk.get_clock("default"), []
    read = store.walk.get_outgoing_edges
    assert count_statements(lambda: frontiers.append(read([*nodes, *pair], clock))) == 1
    assert len(frontiers[0].pointers) == 41
    adjust(store, pair, 0.1)

    def move(targets):
        deltas = tuple(WeightDelta(pair[0], n, CO_USED, 0.1) for n in targets)
        return count_statements(lambda: store.apply([AdjustWeights("default", deltas, "test")]))

    assert move(nodes[:2]) == move(nodes)


def test_more_edges_than_fit_into_one_statement_all_move(store, graph, make):
    nodes = graph.publish(*(make(f"n{i}") for i in range(40)))
    deltas = tuple(WeightDelta(a, b, CO_USED, 0.1) for a in nodes for b in nodes if a != b)
    for _ in range(2):
        store.apply([AdjustWeights("default", deltas, "test")])
    found = store.learned.weights("default", nodes)
    assert len(found) == 40 * 39
    assert list(found.values()) == pytest.approx([0.2] * len(found))


def test_moves_of_a_removed_node_go_with_it_and_unknown_edges_are_harmless(store, pair):
    """Whichever end of the edge it was; a delta for no edge makes no pointer appear."""
    adjust(store, (pair[1], 999_999), 0.2)
    assert store.walk.get_outgoing_edges(pair[1:], store.walk.get_clock("default")).pointers == []
    adjust(store, pair, 0.1)
    adjust(store, (pair[1], pair[0]), 0.1, kind=CO_USED)
    store.apply([RemoveNodes(("b",))])
    assert read_moves(store) == []
