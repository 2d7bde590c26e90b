"""Authority: how fast what leads to a node fades, wherever weights are read; on both databases."""

import math

import pytest
import sqlalchemy as sa
from tables import namespaces, weight_changes

from crabpath_retrievers.core.changes import AdjustWeights, AdvanceClock, PutEdges, WeightDelta
from crabpath_retrievers.core.changes.notes import SetAuthority
from crabpath_retrievers.core.graph import DECAY_RATES, Authority, Edge, EdgeKind, effective_weight
from crabpath_retrievers.storage.write.transaction import Transaction
from crabpath_retrievers.storage.write.weights import undo_weights

HALF = math.log(2)  # decay exponent after which half of the distance to the floor is left
LEFT = {Authority.OVERLAY: 0.5, Authority.CANONICAL: 0.5**0.25, Authority.CONSTITUTIONAL: 1.0}


@pytest.fixture
def pair(graph, make) -> tuple[int, int]:
    """Two nodes without an edge."""
    a, b = graph.publish(make("a"), make("b"))
    return a, b


def learn(store, pair, delta=0.8, kind=EdgeKind.CO_USED):
    """Change a weight of the default namespace."""
    store.apply([AdjustWeights("default", (WeightDelta(*pair, kind, delta),))])


def age(store, exponent=HALF):
    """Let the default namespace age."""
    store.apply([AdvanceClock("default", exponent=exponent)])


def test_the_rates_stand_in_the_order_of_authority():
    """Usual, a quarter, never."""
    assert [DECAY_RATES[rank.value] for rank in Authority] == [1.0, 0.25, 0.0]
    assert effective_weight(0.8, 0.2, 0.0, HALF, 0.0) == 0.8
    assert effective_weight(0.8, 0.2, 0.0, HALF) == pytest.approx(0.5)
    assert effective_weight(0.8, 0.2, 0.0, HALF, 0.25) == pytest.approx(0.2 + 0.6 * 0.5**0.25)


@pytest.mark.parametrize("rank", Authority)
@pytest.mark.parametrize("kind", [EdgeKind.CO_USED, EdgeKind.TAUGHT, EdgeKind.INHIBITS])
def test_learned_weights_fade_by_the_authority_of_their_target(store, graph, pair, rank, kind):
    """The walk and learning read the same weight."""
    store.apply([SetAuthority((pair[1],), rank)])
    delta = -0.6 if kind is EdgeKind.INHIBITS else 0.6
    learn(store, pair, delta, kind)
    age(store)
    expected = pytest.approx(delta * LEFT[rank])
    assert graph.weight(*pair) == expected
    assert store.learned.weights("default", list(pair)) == {(*pair, kind): expected}


@pytest.mark.parametrize("rank", Authority)
def test_deltas_are_added_to_what_is_left(store, graph, pair, rank):
    """What is stored then fades from there at the same speed."""
    store.apply([SetAuthority((pair[1],), rank)])
    learn(store, pair, 0.6)
    age(store)
    learn(store, pair, 0.1)
    assert graph.weight(*pair) == pytest.approx(0.6 * LEFT[rank] + 0.1)
    age(store)
    assert graph.weight(*pair) == pytest.approx((0.6 * LEFT[rank] + 0.1) * LEFT[rank])


@pytest.mark.parametrize("rank", Authority)
def test_structure_fades_by_it_too(store, graph, pair, rank):
    """A sibling edge that nobody touched, and a link on the way to its floor."""
    store.apply([SetAuthority((pair[1],), rank)])
    store.apply([PutEdges((Edge(*pair, EdgeKind.SIBLING, 0.4, 0.0),))])
    age(store)
    assert graph.weight(*pair) == pytest.approx(0.4 * LEFT[rank])


def test_authority_of_the_source_does_not_matter(store, graph, pair):
    """Only what leads to a node is held."""
    store.apply([SetAuthority((pair[0],), Authority.CONSTITUTIONAL)])
    learn(store, pair)
    age(store)
    assert graph.weight(*pair) == pytest.approx(0.4)


def test_the_weight_of_stop_fades_as_usual(store, pair):
    """It leads nowhere."""
    store.apply([SetAuthority(pair, Authority.CONSTITUTIONAL)])
    learn(store, (pair[0], 0), 0.4, EdgeKind.STOP)
    age(store)
    learn(store, (pair[0], 0), 0.0, EdgeKind.STOP)
    frontier = store.walk.get_outgoing_edges(pair, store.walk.get_clock("default"))
    assert frontier.stops == {pair[0]: pytest.approx(0.2)}


@pytest.mark.parametrize("rank", Authority)
@pytest.mark.parametrize("former", Authority)
def test_a_change_of_authority_moves_no_learned_weight(store, graph, pair, former, rank):
    """It goes on from where it stands, with its floor, in every namespace."""
    store.apply([SetAuthority((pair[1],), former)])
    store.apply([PutEdges((Edge(*pair, EdgeKind.LINK, 0.5, 0.25),))])
    learn(store, pair, 0.3, EdgeKind.LINK)
    age(store)
    before = graph.weight(*pair)
    store.apply([SetAuthority((pair[1],), rank)])
    assert graph.weight(*pair) == pytest.approx(before)
    age(store)
    assert graph.weight(*pair) == pytest.approx(0.25 + (before - 0.25) * LEFT[rank])


def undo(store, cause="f"):
    """Take back the moves of one cause, as undoing does."""
    with store._engine.begin() as connection:
        row = connection.execute(sa.select(namespaces.c.key, namespaces.c.exponent)).one()
        undo_weights(Transaction(connection, store._fulltext), *row, cause)


@pytest.mark.parametrize("rank", Authority)
def test_an_undone_move_is_subtracted_as_its_target_fades(store, graph, pair, rank):
    """What others moved is left; a constitutional edge returns exactly, however long ago."""
    store.apply([SetAuthority((pair[1],), rank)])
    learn(store, pair, 0.25)
    before = graph.weight(*pair)
    age(store)
    delta = WeightDelta(*pair, EdgeKind.CO_USED, 0.5)
    store.apply([AdjustWeights("default", (delta,), "f")])
    age(store)
    undo(store)
    assert graph.weight(*pair) == pytest.approx(0.25 * LEFT[rank] ** 2)
    if rank is Authority.CONSTITUTIONAL:
        assert graph.weight(*pair) == before == 0.25


@pytest.mark.parametrize("rank", Authority)
def test_a_move_from_before_the_authority_was_set_is_undone_as_it_faded(store, graph, pair, rank):
    """Half was left of it when its target was anchored."""
    learn(store, pair, 0.2)
    delta = WeightDelta(*pair, EdgeKind.CO_USED, 0.5)
    store.apply([AdjustWeights("default", (delta,), "f")])
    age(store)
    store.apply([SetAuthority((pair[1],), rank)])
    age(store)
    undo(store)
    assert graph.weight(*pair) == pytest.approx(0.2 * 0.5 * LEFT[rank])
    with store.open_reader() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(weight_changes)) == 1
