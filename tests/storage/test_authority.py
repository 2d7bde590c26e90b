"""Authority: how fast what leads to a node fades, wherever weights are read; on both databases."""

import math

import pytest
import sqlalchemy as sa
from tables import weight_changes

from crabpath_retrievers.core.changes import (
    AdjustWeights,
    AdvanceClock,
    ConsumeFeedback,
    KeepFeedback,
    PutEdges,
    WeightDelta,
)
from crabpath_retrievers.core.changes.history import UndoFeedback
from crabpath_retrievers.core.changes.notes import SetAuthority
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.graph import Authority, Edge, EdgeKind

HALF = math.log(2)  # decay exponent after which half of the distance to the floor is left
LEFT = {Authority.OVERLAY: 0.5, Authority.CANONICAL: 0.5**0.25, Authority.CONSTITUTIONAL: 1.0}


@pytest.fixture
def pairs(graph, make) -> dict[Authority, tuple[int, int]]:
    """Two nodes without an edge for each rank, which the second of them has."""
    found = {}
    for rank in Authority:
        a, b = graph.publish(make(f"a{rank}"), make(f"b{rank}"))
        graph.store.apply([SetAuthority((b,), rank)])
        found[rank] = (a, b)
    return found


def learn(store, pairs, delta, kind=EdgeKind.CO_USED, cause=""):
    """Change weights of the default namespace."""
    deltas = tuple(WeightDelta(*pair, kind, delta) for pair in pairs.values())
    store.apply([AdjustWeights("default", deltas, cause)])


def age(store):
    """Let the default namespace age."""
    store.apply([AdvanceClock("default", exponent=HALF)])


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


def test_structure_fades_by_it_too(store, graph, pairs):
    """A sibling edge that nobody touched."""
    edges = [Edge(*pair, EdgeKind.SIBLING, 0.4, 0.0) for pair in pairs.values()]
    store.apply([PutEdges(tuple(edges))])
    age(store)
    for rank, pair in pairs.items():
        assert graph.weight(*pair) == pytest.approx(0.4 * LEFT[rank])


def test_only_what_leads_to_a_node_is_kept(store, graph, pairs):
    """Neither what leads from it, nor the weight of STOP, which leads nowhere."""
    a, b = pairs[Authority.CONSTITUTIONAL]
    learn(store, {0: (b, a)}, 0.8)
    learn(store, {0: (b, 0)}, 0.4, EdgeKind.STOP)
    age(store)
    learn(store, {0: (b, 0)}, 0.0, EdgeKind.STOP)
    assert graph.weight(b, a) == pytest.approx(0.4)
    stops = store.walk.get_outgoing_edges([b], store.walk.get_clock("default")).stops
    assert stops == {b: pytest.approx(0.2)}


@pytest.mark.parametrize("rank", Authority)
def test_a_change_of_authority_moves_no_learned_weight(store, graph, pairs, rank):
    """It goes on from where it stands, with its floor."""
    store.apply([PutEdges(tuple(Edge(*p, EdgeKind.LINK, 0.5, 0.25) for p in pairs.values()))])
    learn(store, pairs, 0.3, EdgeKind.LINK)
    age(store)
    before = {pair: graph.weight(*pair) for pair in pairs.values()}
    store.apply([SetAuthority(tuple(target for _, target in before), rank)])
    assert {pair: graph.weight(*pair) for pair in before} == pytest.approx(before)
    age(store)
    for pair, weight in before.items():
        assert graph.weight(*pair) == pytest.approx(0.25 + (weight - 0.25) * LEFT[rank])


def test_an_undone_move_is_subtracted_as_its_target_fades(store, graph, pairs):
    """What others moved is left; also where the target got its authority after the move."""
    store.apply([KeepFeedback(Feedback(None, 1.0, feedback_id="f", namespace="default"))])
    store.apply([ConsumeFeedback("default", "f", (), 0, "{}")])
    learn(store, pairs, 0.25)
    age(store)
    learn(store, pairs, 0.5, cause="f")
    _, late = pairs[Authority.OVERLAY]
    age(store)
    store.apply([SetAuthority((late,), Authority.CONSTITUTIONAL)])
    age(store)
    store.apply([UndoFeedback("default", "f", 1, "{}", "note")])
    left = {**{rank: LEFT[rank] ** 3 for rank in pairs}, Authority.OVERLAY: 0.5**2}
    for rank, pair in pairs.items():
        assert graph.weight(*pair) == pytest.approx(0.25 * left[rank])
    with store.open_reader() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(weight_changes)) == 3
