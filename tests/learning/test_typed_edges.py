"""Typed edges of a turn and of an episode: which, with which sign, never from what is guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.learning.rules.typed import (
    MIN_IRRELEVANT,
    EdgeObservation,
    TypedEdgeContext,
    apply_observations,
    learn_episode_edges,
    learn_typed_edges,
    make_signed_observation,
)

RATE = 0.5


@pytest.fixture(scope="session")
def routed(turn_of):
    """A turn that entered at s, reached d and e by way of a, and had s among its answers."""
    return turn_of(returned=[("s", "a", "d"), ("s", "a", "e"), ("s",)])


def edges(turn, credit, existing=None, fair=None, situation=None):
    """Weights that one turn adds, by name."""
    where = situation or TypedEdgeContext()
    found = learn_typed_edges(turn, credit, fair or credit, where, existing or {}, RATE)
    total = {}
    for source, target, kind, delta in found:
        total[source, target, kind] = total.get((source, target, kind), 0.0) + delta
    return total


def of_kind(found, kind):
    """Only the edges of one kind, by their ends."""
    return {edge[:2]: weight for edge, weight in found.items() if edge[2] == kind}


def test_a_success_is_caused_from_the_entry(routed):
    found = edges(routed, Credit(1.0, documents={"d": 1.0, "e": 0.0}))
    assert of_kind(found, "caused_success") == {("s", "d"): RATE}
    assert not of_kind(found, "caused_failure")
    assert not of_kind(found, "irrelevant")


def test_a_document_does_not_cause_itself(routed):
    found = edges(routed, Credit(1.0, documents={"s": 1.0}))
    assert found == {}


def test_a_failure_blames_what_was_followed_and_calls_the_rest_needless(routed):
    """Followed: towards -1. Returned and said to be ignored: towards -.3."""
    found = edges(routed, Credit(-1.0, documents={"d": -1.0, "e": 0.0}))
    assert of_kind(found, "caused_failure") == {("s", "d"): -RATE}
    assert of_kind(found, "irrelevant") == {("s", "e"): pytest.approx(RATE * MIN_IRRELEVANT)}


def test_what_is_only_inferred_to_be_ignored_is_not_held_against_it(routed):
    credit = Credit(-1.0, documents={"d": -1.0, "e": 0.0}, inferred=frozenset({"d", "e"}))
    assert not of_kind(edges(routed, credit), "irrelevant")


def test_a_followed_document_that_answers_for_nothing_is_neither_blamed_nor_needless(routed):
    """It was for another task: its share of the blame is 0, but it was used."""
    credit = Credit(-1.0, documents={"d": -1.0})
    found = edges(routed, credit, fair=Credit(-1.0, documents={"d": 0.0}))
    assert not of_kind(found, "caused_failure")
    assert not of_kind(found, "irrelevant")
    assert of_kind(found, "temporal")


@pytest.mark.parametrize("outcome", [1.0, -1.0])
def test_an_outcome_alone_moves_regions_by_their_share_and_nothing_else(routed, outcome):
    """Two of three documents lie in H, one in G: nobody knows which of them did it."""
    where = TypedEdgeContext("Q", {"d": "H", "e": "H", "s": "G"}, used_before=["b"])
    found = edges(routed, Credit(outcome), situation=where)
    assert found == {
        ("Q", "H", "region_transition"): pytest.approx(RATE * outcome * 2 / 3),
        ("Q", "G", "region_transition"): pytest.approx(RATE * outcome / 3),
    }


def test_regions_are_signed_by_what_became_of_the_step(routed):
    """Used in a success, then followed in a failure; a region may lead to itself."""
    where = TypedEdgeContext("Q", {"d": "Q", "e": "H"})
    won = edges(routed, Credit(1.0, documents={"d": 1.0, "e": 0.0}), situation=where)
    lost = edges(routed, Credit(-1.0, documents={"e": -1.0}), situation=where)
    assert of_kind(won, "region_transition") == {("Q", "Q"): RATE}
    assert of_kind(lost, "region_transition") == {("Q", "H"): -RATE}


def test_the_order_of_use_follows_the_route_and_the_turn_before(routed):
    """Every step of the route once, and from what was used before; never to itself."""
    where = TypedEdgeContext(used_before=["b", "d"])
    found = edges(routed, Credit(1.0, documents={"d": 1.0}), situation=where)
    assert of_kind(found, "temporal") == {("s", "a"): RATE, ("a", "d"): RATE, ("b", "d"): RATE}


def test_the_order_between_turns_is_bounded(turn_of):
    names = [f"n{i}" for i in range(8)]
    turn = turn_of(returned=[(name,) for name in names])
    credit = Credit(1.0, documents=dict.fromkeys(names, 1.0))
    where = TypedEdgeContext(used_before=[f"b{i}" for i in range(8)])
    assert len(of_kind(edges(turn, credit, situation=where), "temporal")) == 9


def test_the_same_action_links_what_one_turn_used(turn_of):
    """Found by search both of them: the better one points to the next, with the sign."""
    turn = turn_of(returned=[("x",), ("y",), ("z",)])
    won = edges(turn, Credit(1.0, documents={"x": 1.0, "y": 0.0, "z": 1.0}))
    lost = edges(turn, Credit(-1.0, documents={"x": -1.0, "z": -1.0}))
    assert of_kind(won, "same_action") == {("x", "z"): RATE}
    assert of_kind(lost, "same_action") == {("x", "z"): -RATE}


def test_the_same_action_links_to_what_came_of_the_entry_before(turn_of, step_of):
    """The strongest earlier success that the same kind of pointer leads to in this turn, too."""
    turn = turn_of(
        steps=[step_of("s", {"d": 0.5, "old": 0.4, "older": 0.3}, ())], returned=[("s", "d")]
    )
    (item,) = turn.returned
    object.__setattr__(item, "support", item.path[0])
    kind = item.path[0].kind
    offered = {c.kind for step in turn.steps for c in step.candidates}
    assert offered == {kind}
    existing = {
        ("s", "old", "caused_success"): 0.6,
        ("s", "older", "caused_success"): 0.2,
        ("s", "unoffered", "caused_success"): 0.9,
        ("s", "older", "caused_failure"): -0.9,
    }
    won = edges(turn, Credit(1.0, documents={"d": 1.0}), existing)
    lost = edges(turn, Credit(-1.0, documents={"d": -1.0}), existing)
    assert of_kind(won, "same_action") == {("d", "old"): RATE}
    assert of_kind(lost, "same_action") == {("d", "older"): -RATE}


def test_no_document_gets_more_than_two_edges_of_the_same_action(turn_of):
    names = [f"n{i}" for i in range(10)]
    turn = turn_of(returned=[(name,) for name in names])
    found = edges(turn, Credit(1.0, documents=dict.fromkeys(names, 1.0)))
    sources = [source for source, _ in of_kind(found, "same_action")]
    assert max(map(sources.count, sources)) <= 2


def test_a_turn_without_seeds_or_documents_says_nothing(turn_of):
    assert edges(turn_of(seeds=()), Credit(1.0), situation=TypedEdgeContext("Q")) == {}
    lone = turn_of(returned=[("d",)], seeds=())
    assert edges(lone, Credit(1.0, documents={"d": 1.0})) == {}


def test_feedback_that_counts_less_moves_less(routed):
    found = edges(routed, Credit(1.0, 0.1, {"d": 1.0}))
    assert of_kind(found, "caused_success") == {("s", "d"): pytest.approx(0.1 * RATE)}


def test_an_episode_says_order_and_outcome_of_each_step():
    """From state to state where they are documents, from region to region always."""
    found = {
        d[:3]: d.delta
        for d in learn_episode_edges(["a", "b", None], ["A", "A", "B"], -1.0, {}, RATE)
    }
    assert found == {
        ("a", "b", "temporal"): RATE,
        ("a", "b", "caused_failure"): -RATE,
        ("A", "A", "region_transition"): -RATE,
        ("A", "B", "region_transition"): -RATE,
    }


def test_an_episode_without_outcome_says_the_order_alone():
    """A reward of 0 is neither."""
    assert {d.kind for d in learn_episode_edges(["a", "b"], ["A", "B"], 0.0, {}, RATE)} == {
        "temporal"
    }


def test_one_step_after_the_other_counts_from_where_the_first_one_led():
    """Two pulls of one edge: .5, then half of what is left."""
    pull = make_signed_observation("a", "b", EdgeKind.CAUSED_SUCCESS, 1.0)
    assert [d.delta for d in apply_observations([pull, pull], {}, RATE)] == [0.5, 0.25]


def test_a_bad_outcome_never_raises_what_stands_below_its_bound():
    """An edge set to -.8 is not pulled up to -.3."""
    pull = EdgeObservation("a", "b", EdgeKind.IRRELEVANT, 1.0, MIN_IRRELEVANT)
    assert apply_observations([pull], {("a", "b", "irrelevant"): -0.8}, RATE) == []


@given(
    weight=st.floats(-1, 1),
    strengths=st.lists(st.floats(0, 1), max_size=6),
    bound=st.sampled_from([1.0, -1.0, MIN_IRRELEVANT]),
    rate=st.floats(0.01, 1),
)
def test_weights_never_leave_their_range_nor_go_against_the_outcome(weight, strengths, bound, rate):
    pulls = [
        EdgeObservation("a", "b", EdgeKind.TEMPORAL, strength, bound) for strength in strengths
    ]
    steps = [d.delta for d in apply_observations(pulls, {("a", "b", "temporal"): weight}, rate)]
    assert all(step * bound > 0 for step in steps)
    assert -1 - 1e-9 <= weight + sum(steps) <= 1 + 1e-9
