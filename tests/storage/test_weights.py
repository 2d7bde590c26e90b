"""Weights that a namespace learns on top of the shared graph, and how they fade."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from tables import overlay, turns, weight_changes

from crabpath_retrievers import Edge, EdgeKind, Feedback
from crabpath_retrievers.core.records import Authority
from crabpath_retrievers.parts.typed_graph import TypedQueries
from tests.seams import make_change
from tests.stubs.statements import list_statements

HALF = math.log(2)  # decay exponent after which half of the distance to the floor is left
LINK, CO_USED = EdgeKind.LINK, EdgeKind.CO_USED
LEFT = {Authority.OVERLAY: 0.5, Authority.CANONICAL: 0.5**0.25, Authority.CONSTITUTIONAL: 1.0}


@pytest.fixture
def pair(graph, make) -> tuple[int, int]:
    """Two nodes with a link of prior 0.5 and floor 0.25 between them."""
    a, b = graph.publish(make("a"), make("b"))
    graph.join(a, b)
    return a, b


def adjust(store, pair, *deltas, namespace="default", kind=LINK):
    """Change the weight of the edge in one namespace."""
    moves = tuple(make_change("WeightDelta", *pair, kind, delta) for delta in deltas)
    store.apply([make_change("AdjustWeights", namespace, moves, "test")])


def age(store, namespace="default", **turns):
    """Let a namespace live for one half-life."""
    store.apply([make_change("advance_clock", namespace, exponent=HALF, **turns)])


def read_moves(store):
    """Kind, cause, delta and mark of every move, in order."""
    names = ("kind", "cause", "delta", "decay_at")
    columns = [weight_changes.c[name] for name in names]
    with store.connect() as connection:
        return connection.execute(sa.select(*columns).order_by(weight_changes.c.sequence)).all()


def test_weights_belong_to_a_namespace_and_go_with_it(store, graph, pair):
    """Also what moved them and its clock; documents and other namespaces stay."""
    for namespace, delta in ("ann", 0.3), ("bob", -0.4):
        adjust(store, pair, delta, namespace=namespace)
        store.apply([make_change("advance_clock", namespace, turns=3)])
    assert graph.weight(*pair, "ann") == pytest.approx(0.8)
    assert graph.weight(*pair, "never seen") == 0.5
    store.apply(
        [make_change("forget_namespace", "ann"), make_change("forget_namespace", "never seen")]
    )
    assert graph.weight(*pair, "ann") == 0.5
    assert graph.weight(*pair, "bob") == pytest.approx(0.1)
    assert store.walk.get_clock("ann") == store.walk.get_clock("never seen")
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


def test_statements_do_not_grow_with_the_number_of_edges(store, graph, make, pair, monkeypatch):
    """A whole frontier is read in one; many weights move with as many as two do."""
    nodes = graph.publish(*(make(f"n{i}") for i in range(40)))
    store.apply([make_change("put_edges", tuple(Edge(n, pair[0], LINK, 0.5, 0.25) for n in nodes))])
    clock = store.walk.get_clock("default")
    with list_statements(monkeypatch) as statements:
        found = store.walk.get_outgoing_edges([*nodes, *pair], clock)
    assert (len(statements), len(found.pointers)) == (1, 41)
    adjust(store, pair, 0.1)

    def count_moving(targets):
        deltas = tuple(make_change("WeightDelta", pair[0], n, CO_USED, 0.1) for n in targets)
        with list_statements(monkeypatch) as statements:
            store.apply([make_change("AdjustWeights", "default", deltas, "test")])
        return len(statements)

    assert count_moving(nodes[:2]) == count_moving(nodes)


def test_more_edges_than_fit_into_one_statement_all_move(store, graph, make):
    nodes = graph.publish(*(make(f"n{i}") for i in range(40)))
    deltas = tuple(
        make_change("WeightDelta", a, b, CO_USED, 0.1) for a in nodes for b in nodes if a != b
    )
    for _ in range(2):
        store.apply([make_change("AdjustWeights", "default", deltas, "test")])
    found = store.learned.weights("default", nodes)
    assert len(found) == 40 * 39
    assert list(found.values()) == pytest.approx([0.2] * len(found))


def test_moves_of_a_removed_node_go_with_it_and_unknown_edges_are_harmless(store, pair):
    """Whichever end of the edge it was; a delta for no edge makes no pointer appear."""
    adjust(store, (pair[1], 999_999), 0.2)
    assert store.walk.get_outgoing_edges(pair[1:], store.walk.get_clock("default")).pointers == []
    adjust(store, pair, 0.1)
    adjust(store, (pair[1], pair[0]), 0.1, kind=CO_USED)
    store.apply([make_change("remove_documents", ("b",))])
    assert read_moves(store) == []


@pytest.fixture
def pairs(graph, make) -> dict[Authority, tuple[int, int]]:
    """Two nodes without an edge for each rank, which the second of them has."""
    found = {}
    for rank in Authority:
        a, b = graph.publish(make(f"a{rank}"), make(f"b{rank}"))
        graph.store.apply([make_change("set_authority", (b,), rank)])
        found[rank] = (a, b)
    return found


def learn(store, pairs, delta, kind=EdgeKind.CO_USED, cause=""):
    """Change weights of the default namespace."""
    deltas = tuple(make_change("WeightDelta", *pair, kind, delta) for pair in pairs.values())
    store.apply([make_change("AdjustWeights", "default", deltas, cause)])


@pytest.mark.parametrize("kind", [EdgeKind.CO_USED, EdgeKind.TAUGHT, EdgeKind.INHIBITS])
def test_learned_weights_fade_by_the_authority_of_their_target(store, graph, pairs, kind):
    """The walk and learning read the same weight; deltas are added to what is left of it."""
    sign = -1 if kind is EdgeKind.INHIBITS else 1
    learn(store, pairs, 0.6 * sign, kind)
    age(store)
    for rank, pair in pairs.items():
        expected = pytest.approx(0.6 * sign * LEFT[rank])
        assert graph.weight(*pair) == expected
        assert store.learned.weights("default", list(pair)) == {(*pair, kind): expected}
    learn(store, pairs, 0.1 * sign, kind)
    age(store)
    for rank, pair in pairs.items():
        assert graph.weight(*pair) == pytest.approx(sign * (0.6 * LEFT[rank] + 0.1) * LEFT[rank])


def test_edges_that_nobody_touched_decay_from_their_birth(store, graph, pairs):
    """A sibling edge fades from its prior to 0 with the turns since it was put there."""
    store.apply([make_change("advance_clock", "default", exponent=5.0)])
    edges = [Edge(*pair, EdgeKind.SIBLING, 0.4, 0.0) for pair in pairs.values()]
    store.apply([make_change("put_edges", tuple(edges))])
    age(store)
    for rank, pair in pairs.items():
        assert graph.weight(*pair) == pytest.approx(0.4 * LEFT[rank])
        assert graph.weight(*pair, "younger") == pytest.approx(0.4)  # its own clock stands still


def test_only_what_leads_to_a_node_is_kept(store, graph, pairs):
    """Neither what leads from it, nor the weight of STOP, which leads nowhere."""
    a, b = pairs[Authority.CONSTITUTIONAL]
    learn(store, {0: (b, a)}, 0.8)
    learn(store, {0: (b, 0)}, 0.4, EdgeKind.STOP)
    age(store)
    learn(store, {0: (b, 0)}, 0.0, EdgeKind.STOP)
    assert graph.weight(b, a) == pytest.approx(0.4)
    found = store.walk.get_outgoing_edges([b], store.walk.get_clock("default"))
    assert found.stops == {b: pytest.approx(0.2)}
    assert [edge.target.key for edge in found.pointers] == [a]
    assert store.walk.get_outgoing_edges([b], store.walk.get_clock("other")).stops == {}


@pytest.mark.parametrize("rank", Authority)
def test_a_change_of_authority_moves_no_learned_weight(store, graph, pairs, rank):
    """It goes on from where it stands, with its floor."""
    store.apply(
        [
            make_change(
                "put_edges", tuple(Edge(*p, EdgeKind.LINK, 0.5, 0.25) for p in pairs.values())
            )
        ]
    )
    learn(store, pairs, 0.3, EdgeKind.LINK)
    age(store)
    before = {pair: graph.weight(*pair) for pair in pairs.values()}
    store.apply([make_change("set_authority", tuple(target for _, target in before), rank)])
    assert {pair: graph.weight(*pair) for pair in before} == pytest.approx(before)
    age(store)
    for pair, weight in before.items():
        assert graph.weight(*pair) == pytest.approx(0.25 + (weight - 0.25) * LEFT[rank])


def test_an_undone_move_is_subtracted_as_its_target_fades(store, graph, pairs):
    """What others moved is left; also where the target got its authority after the move."""
    store.apply(
        [make_change("KeepFeedback", Feedback(None, 1.0, feedback_id="f", namespace="default"))]
    )
    store.apply([make_change("ConsumeFeedback", "default", "f", (), 0, "{}")])
    learn(store, pairs, 0.25)
    age(store)
    learn(store, pairs, 0.5, cause="f")
    _, late = pairs[Authority.OVERLAY]
    age(store)
    store.apply([make_change("set_authority", (late,), Authority.CONSTITUTIONAL)])
    age(store)
    store.apply([make_change("undo_feedback", "default", "f", 1, "{}", "note")])
    left = {**{rank: LEFT[rank] ** 3 for rank in pairs}, Authority.OVERLAY: 0.5**2}
    for rank, pair in pairs.items():
        assert graph.weight(*pair) == pytest.approx(0.25 * left[rank])
    assert len(read_moves(store)) == 3


def test_threads_lose_no_delta_and_do_not_lock_each_other_out(store, graph, make, pair):
    """They start together on untouched edges, and change them in opposite orders."""
    (c,) = graph.publish(make("c"))
    graph.join(pair[0], c)
    edges, start, step = [pair, (pair[0], c)], threading.Barrier(8), 2**-7  # its sums are exact

    def adjust(number):
        start.wait()
        for _ in range(5):
            order = edges[:: 1 if number % 2 else -1]
            deltas = tuple(make_change("WeightDelta", *edge, LINK, step) for edge in order)
            store.apply([make_change("AdjustWeights", "default", deltas)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(adjust, range(8)))
    assert [graph.weight(*edge) for edge in edges] == [0.5 + 40 * step] * 2


def test_edges_are_read_by_kind_in_both_directions(store, graph, make, pair):
    """Each once with what was learned; not at weight 0, and not those of removed nodes."""
    (a, b), (c, gone) = pair, graph.publish(make("c"), make("gone"))
    graph.join(b, c)
    store.apply([make_change("put_edges", (Edge(a, b, EdgeKind.SIMILAR, 0.4, 0.4),))])
    adjust(store, pair, 0.2)
    for edge, delta in ((a, c), 0.4), ((b, c), -0.3), ((a, gone), 0.4):
        adjust(store, edge, delta, kind=CO_USED)
    adjust(store, (c, a), 0.4, -0.4, kind=CO_USED)
    graph.publish(removed=("gone",))

    def read(keys, kinds, direction="out", namespace="default"):
        found = TypedQueries(store).edges(keys, store.walk.get_clock(namespace), kinds, direction)
        return sorted((e.near, e.id, e.kind.label, pytest.approx(e.weight)) for e in found)

    used, similar = [(a, "c", "co_used", 0.4), (b, "c", "co_used", -0.3)], (a, "b", "similar", 0.4)
    assert read([a], list(EdgeKind)) == sorted([(a, "b", "link", 0.7), similar, used[0]])
    assert read([a], list(EdgeKind), namespace="ada") == [(a, "b", "link", 0.5), similar]
    unknown = range(10_000, 13_000)  # more than one statement takes
    assert read([*unknown, a, b, c], [CO_USED]) == used
    entering = [(c, "a", "co_used", 0.4), (c, "b", "co_used", -0.3), (c, "b", "link", 0.5)]
    assert read([c], [CO_USED, LINK], "in") == entering
    assert read([a, b], [EdgeKind.TEMPORAL]) == read([], [CO_USED]) == read([a], []) == []
