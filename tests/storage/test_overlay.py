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


@pytest.fixture
def pair(graph, make) -> tuple[int, int]:
    """Two nodes with a link of prior 0.5 and floor 0.25 between them."""
    a, b = graph.publish(make("a"), make("b"))
    graph.join(a, b)
    return a, b


def adjust(store, pair, delta, namespace="default", kind=EdgeKind.LINK):
    """Change the weight of the edge in one namespace."""
    store.apply([AdjustWeights(namespace, (WeightDelta(*pair, kind, delta),), "test")])


def test_namespaces_see_only_their_own_weights(store, graph, pair):
    """What one namespace learned leaves another at the prior."""
    adjust(store, pair, 0.3, "ann")
    adjust(store, pair, -0.4, "bob")
    assert graph.weight(*pair, "ann") == pytest.approx(0.8)
    assert graph.weight(*pair, "bob") == pytest.approx(0.1)
    assert graph.weight(*pair, "never seen") == 0.5


def test_weights_decay_towards_the_floor(store, graph, pair):
    """After one half-life half of the distance to the floor is left, after two a quarter."""
    adjust(store, pair, 0.3)  # .8, which is .55 above the floor
    store.apply([AdvanceClock("default", turns=50, exponent=HALF)])
    assert graph.weight(*pair) == pytest.approx(0.25 + 0.55 / 2)
    store.apply([AdvanceClock("default", turns=50, exponent=HALF)])
    assert graph.weight(*pair) == pytest.approx(0.25 + 0.55 / 4)
    assert store.walk.get_clock("default").turn == 100


def test_a_delta_is_added_to_the_decayed_weight(store, graph, pair):
    """An adjustment first lets the weight decay, then starts a new decay."""
    adjust(store, pair, 0.3)
    store.apply([AdvanceClock("default", exponent=HALF)])
    adjust(store, pair, 0.1)
    assert graph.weight(*pair) == pytest.approx(0.25 + 0.55 / 2 + 0.1)
    store.apply([AdvanceClock("default", exponent=HALF)])
    assert graph.weight(*pair) == pytest.approx(0.25 + (0.55 / 2 + 0.1) / 2)


def test_edges_that_nobody_touched_decay_from_their_birth(store, graph, make):
    """A sibling edge fades from its prior to 0 with the turns since it was put there."""
    a, b = graph.publish(make("a"), make("b"))
    store.apply([AdvanceClock("default", exponent=5.0)])
    store.apply([PutEdges((Edge(a, b, EdgeKind.SIBLING, 0.4, 0.0),))])
    assert graph.weight(a, b) == pytest.approx(0.4)
    store.apply([AdvanceClock("default", exponent=HALF)])
    assert graph.weight(a, b) == pytest.approx(0.2)
    assert graph.weight(a, b, "younger") == pytest.approx(0.4)  # its own clock stands still


@pytest.mark.parametrize(("deltas", "weight"), [((0.9, 0.9), 1.0), ((-0.9, -0.9), -1.0)])
def test_weights_stay_in_their_range(store, graph, pair, deltas, weight):
    """A weight is clipped to [-1, 1]."""
    for delta in deltas:
        adjust(store, pair, delta)
    assert graph.weight(*pair) == weight


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deltas=st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=8), data=st.data())
def test_deltas_commute(store, graph, pair, deltas, data):
    """Away from the clip the order of adjustments does not matter: they add up."""
    namespaces = [uuid.uuid4().hex, uuid.uuid4().hex]
    for namespace, order in zip(
        namespaces, (deltas, data.draw(st.permutations(deltas))), strict=True
    ):
        for delta in order:
            adjust(store, pair, delta, namespace)
    first, second = (graph.weight(*pair, namespace) for namespace in namespaces)
    assert first == pytest.approx(second) == pytest.approx(0.5 + sum(deltas))


def test_the_weight_of_stop_is_learned_per_node_and_namespace(store, pair):
    """STOP is an edge to nowhere that starts at 0 and is reported apart from the pointers."""
    stop = (pair[0], 0)
    adjust(store, stop, 0.25, kind=EdgeKind.STOP)
    frontier = store.walk.get_outgoing_edges(pair, store.walk.get_clock("default"))
    assert frontier.stops == {pair[0]: pytest.approx(0.25)}
    assert [p.target.key for p in frontier.pointers] == [pair[1]]
    store.apply([AdvanceClock("default", exponent=HALF)])
    frontier = store.walk.get_outgoing_edges(pair, store.walk.get_clock("default"))
    assert frontier.stops == {pair[0]: pytest.approx(0.125)}
    assert store.walk.get_outgoing_edges(pair, store.walk.get_clock("other")).stops == {}


def test_a_whole_frontier_is_read_in_one_statement(store, graph, make, pair, monkeypatch):
    """However many nodes the frontier has, their edges come with one statement."""
    nodes = graph.publish(*(make(f"n{i}") for i in range(50)))
    for node in nodes:
        graph.join(node, pair[0])
    clock = store.walk.get_clock("default")
    statements = []
    opened = sql_tools.open_driver_cursor

    @contextmanager
    def counted(connection):
        with opened(connection) as cursor:
            statements.append(cursor)
            yield cursor

    monkeypatch.setattr(sql_tools, "open_driver_cursor", counted)
    engine = store._reader
    sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    found = store.walk.get_outgoing_edges([*nodes, *pair], clock)
    assert len(found.pointers) == 51
    assert len(statements) == 1


def test_forgetting_a_namespace_leaves_the_others(store, graph, pair):
    """Its weights, what moved them and its clock go; documents and other namespaces stay."""
    for namespace in ("ann", "bob"):
        adjust(store, pair, 0.2, namespace)
        store.apply([AdvanceClock(namespace, turns=3)])
    store.apply([ForgetNamespace("ann"), ForgetNamespace("never seen")])
    assert graph.weight(*pair, "ann") == 0.5
    assert graph.weight(*pair, "bob") == pytest.approx(0.7)
    assert store.walk.get_clock("ann") == Clock(0, 0, 0.0)
    assert store.walk.get_clock("bob").turn == 3
    tables = graph.contents()
    assert len(tables[overlay.name]) == 1
    assert tables[turns.name] == []
    assert len(tables[weight_changes.name]) == 1


def moved(store):
    """Kind, cause, delta and mark of every move, in order."""
    columns = (
        weight_changes.c.kind,
        weight_changes.c.cause,
        weight_changes.c.delta,
        weight_changes.c.decay_at,
    )
    with store.open_reader() as connection:
        return connection.execute(sa.select(*columns).order_by(weight_changes.c.sequence)).all()


def test_moves_tell_what_moved_a_weight(store, pair):
    """By how much it really did, for what reason, and when in the life of the namespace."""
    adjust(store, pair, 0.3)
    store.apply([AdvanceClock("default", exponent=HALF)])
    adjust(store, pair, 0.9)
    link = EdgeKind.LINK.value
    assert moved(store) == [
        (link, "test", pytest.approx(0.3), 0.0),
        (link, "test", pytest.approx(1.0 - (0.25 + 0.55 / 2)), pytest.approx(HALF)),
    ]


def test_deltas_of_one_edge_in_one_change_add_up(store, graph, pair):
    """Each is a move of its own, and each is kept within the bounds."""
    deltas = tuple(WeightDelta(*pair, EdgeKind.LINK, delta) for delta in (0.4, 0.4, -0.2))
    store.apply([AdjustWeights("default", deltas, "test")])
    assert graph.weight(*pair) == pytest.approx(0.8)
    assert [row.delta for row in moved(store)] == pytest.approx([0.4, 0.1, -0.2])


def test_many_weights_move_with_a_constant_number_of_statements(
    store, graph, make, pair, monkeypatch
):
    """However many edges one change is about."""
    nodes = graph.publish(*(make(f"n{i}") for i in range(40)))
    adjust(store, pair, 0.1)
    counts = []
    for number in (2, 40):
        statements = []
        opened = sql_tools.open_driver_cursor

        @contextmanager
        def counted(connection, seen=statements, opened=opened):
            with opened(connection) as cursor:
                seen.append(cursor)
                yield cursor

        deltas = tuple(WeightDelta(pair[0], n, EdgeKind.CO_USED, 0.1) for n in nodes[:number])
        with monkeypatch.context() as counting:
            counting.setattr(sql_tools, "open_driver_cursor", counted)
            store.apply([AdjustWeights("default", deltas, "test")])
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_more_edges_than_fit_into_one_statement(store, graph, make, pair):
    """All of them move."""
    nodes = graph.publish(*(make(f"n{i}") for i in range(40)))
    deltas = tuple(WeightDelta(a, b, EdgeKind.CO_USED, 0.1) for a in nodes for b in nodes if a != b)
    for _ in range(2):
        store.apply([AdjustWeights("default", deltas, "test")])
    found = store.learned.weights("default", nodes)
    assert len(found) == 40 * 39
    assert list(found.values()) == pytest.approx([0.2] * len(found))


def test_moves_of_a_removed_node_go_with_it(store, pair):
    """Whichever end of the edge it was."""
    other = (pair[1], pair[0])
    adjust(store, pair, 0.1)
    adjust(store, other, 0.1, kind=EdgeKind.CO_USED)
    store.apply([RemoveNodes(("b",))])
    assert moved(store) == []


def test_what_is_learned_about_an_unknown_edge_is_harmless(store, pair):
    """A delta for an edge that is not in the graph makes no pointer appear."""
    adjust(store, (pair[1], 999_999), 0.2)
    assert store.walk.get_outgoing_edges(pair[1:], store.walk.get_clock("default")).pointers == []
