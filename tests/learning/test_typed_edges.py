"""Typed edges of a turn, and influence between entities: which, with which sign."""

import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.errors import MissingExtraError
from crabpath_retrievers.parts.typed_graph import (
    MAX_ENTITIES,
    MIN_IRRELEVANT,
    EdgeObservation,
    TypedEdgeContext,
    apply_observations,
    build_series,
    find_influences,
    learn_typed_edges,
)

RATE = 0.5


@pytest.fixture(scope="session")
def routed(turn_of):
    """A turn that entered at s, reached d and e by way of a, and had s among its answers."""
    return turn_of(returned=[("s", "a", "d"), ("s", "a", "e"), ("s",)])


def learn(turn, credit, existing=None, fair=None, situation=None):
    """Weights that one turn adds, by name."""
    where = situation or TypedEdgeContext()
    total = {}
    for source, target, kind, delta in learn_typed_edges(
        turn, credit, fair or credit, where, existing or {}, RATE
    ):
        total[source, target, kind] = total.get((source, target, kind), 0.0) + delta
    return total


def select(found, kind):
    """Only the edges of one kind, by their ends."""
    return {edge[:2]: weight for edge, weight in found.items() if edge[2] == kind}


WON, LOST = ({"d": 1.0, "e": 0.0}, {"d": -1.0, "e": 0.0})
ROUTE = {("s", "a"): RATE, ("a", "d"): RATE}


@pytest.mark.parametrize(
    ("credit", "options", "expected"),
    [
        # From where the query entered to what was used, by a step of the rate and the weight.
        (
            Credit(1.0, documents=WON),
            {},
            {"caused_success": {("s", "d"): RATE}, "caused_failure": {}, "irrelevant": {}},
        ),
        (Credit(1.0, 0.1, {"d": 1.0}), {}, {"caused_success": {("s", "d"): 0.1 * RATE}}),
        # Followed: towards -1. Returned and said to be ignored, not only inferred: towards -.3.
        (
            Credit(-1.0, documents=LOST),
            {},
            {
                "caused_failure": {("s", "d"): -RATE},
                "irrelevant": {("s", "e"): RATE * MIN_IRRELEVANT},
            },
        ),
        (Credit(-1.0, documents=LOST, inferred=frozenset("de")), {}, {"irrelevant": {}}),
        # It was for another task: its share of the blame is 0, but it was used.
        (
            Credit(-1.0, documents={"d": -1.0}),
            {"fair": Credit(-1.0, documents={"d": 0.0})},
            {"caused_failure": {}, "irrelevant": {}, "temporal": ROUTE},
        ),
        # Every step of the route once, and from what was used before; never to itself.
        (
            Credit(1.0, documents={"d": 1.0}),
            {"situation": TypedEdgeContext(used_before=["b", "d"])},
            {"temporal": {**ROUTE, ("b", "d"): RATE}},
        ),
    ],
)
def test_edges_of_a_turn(routed, credit, options, expected):
    found = learn(routed, credit, **options)
    assert {kind: select(found, kind) for kind in expected} == {
        kind: pytest.approx(edges) for kind, edges in expected.items()
    }


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
    won = learn(turn, Credit(1.0, documents={"d": 1.0}), existing)
    lost = learn(turn, Credit(-1.0, documents={"d": -1.0}), existing)
    assert select(won, "same_action") == {("d", "old"): RATE}
    assert select(lost, "same_action") == {("d", "older"): -RATE}


def test_the_same_action_links_what_one_turn_used(turn_of):
    """Found by search all of them: the better one points to the next, with the sign.

    Two of the same action from each; three documents on either side of the order of turns.
    """
    names = [f"n{i}" for i in range(10)]
    turn = turn_of(returned=[(name,) for name in names], seeds=())
    won = learn(turn, Credit(1.0, documents={"n0": 1.0, "n1": 0.0, "n2": 1.0}))
    lost = learn(turn, Credit(-1.0, documents={"n0": -1.0, "n2": -1.0}))
    assert select(won, "same_action") == {("n0", "n2"): RATE}
    assert select(lost, "same_action") == {("n0", "n2"): -RATE}
    assert learn(turn, Credit(1.0, documents={"n0": 1.0})) == {}  # nothing led to it
    where = TypedEdgeContext(used_before=[f"b{i}" for i in range(8)])
    found = learn(turn, Credit(1.0, documents=dict.fromkeys(names, 1.0)), situation=where)
    assert len(select(found, "temporal")) == 9
    sources = [source for source, _ in select(found, "same_action")]
    assert max(map(sources.count, sources)) <= 2


@given(
    weight=st.floats(-1, 1),
    strengths=st.lists(st.just(0.0) | st.floats(1e-9, 1), max_size=6),
    bound=st.sampled_from([1.0, -1.0, MIN_IRRELEVANT]),
    rate=st.floats(0.01, 1),
)
@example(weight=-0.8, strengths=[1.0], bound=MIN_IRRELEVANT, rate=RATE)
def test_weights_never_leave_their_range_nor_go_against_the_outcome(weight, strengths, bound, rate):
    """One step after the other counts from where the first one led."""
    pulls = [
        EdgeObservation("a", "b", EdgeKind.TEMPORAL, strength, bound) for strength in strengths
    ]
    steps = [d.delta for d in apply_observations(pulls, {("a", "b", "temporal"): weight}, rate)]
    assert all(step * bound > 0 for step in steps)
    assert -1 - 1e-9 <= weight + sum(steps) <= 1 + 1e-9
    assert len(steps) <= len(strengths)
    if weight == 0 and strengths == [1.0, 1.0]:
        assert steps[1] == pytest.approx(steps[0] * (1 - rate))


def noise(seed, entities=6, windows=200):
    """Independent series of sparse uses."""
    rng = np.random.default_rng(seed)
    return {f"e{i}": (rng.random(windows) < 0.3).astype(float) for i in range(entities)}


def planted(seed, sign=1.0):
    """As noise, but b follows on a in four of five windows."""
    series = noise(seed)
    rng = np.random.default_rng(seed + 1)
    follows = np.roll(series["e0"], 1) * (rng.random(200) < 0.8)
    series["e1"] = sign * follows + 0.1 * rng.standard_normal(200)
    return series


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_planted_direction_is_found_with_its_sign_and_not_the_reverse(sign):
    for seed in range(2):
        found = find_influences(planted(seed, sign))
        assert found[0][:2] == ("e0", "e1")
        assert found[0].weight * sign > 0.5
        assert found[0].q < 0.001
        assert ("e1", "e0") not in {one[:2] for one in found}


def test_on_noise_hardly_ever_anything_is_found():
    """Where nothing is true, any find is a false one: at most in the controlled share of draws.

    Of 20 draws 1 is expected at a level of .05; more than 4 would be a chance of about .3 %.
    """
    draws = [find_influences(noise(100 + seed)) for seed in range(20)]
    assert sum(map(bool, draws)) <= 4


def test_series_that_cannot_be_compared_are_passed_over():
    """Short and constant ones, a lone one, two that are one, one that its own past explains."""
    long, beat = planted(0), np.tile([0.0, 1.0], 100)
    one = long["e0"]
    for series in (
        {name: values[:20] for name, values in long.items()},
        {"a": np.zeros(200), "b": np.ones(200)},
        {"a": one},
        {},
        {"a": one, "b": one.copy()},
    ):
        assert find_influences(series) == []
    assert ("e0", "beat") not in {each[:2] for each in find_influences({**noise(8), "beat": beat})}
    # The past of a perfect follower is that of its leader, a window later.
    found = find_influences({"a": one, "b": np.roll(one, 1)}, lags=2)
    assert [(*each[:2], each.weight) for each in found] == [("a", "b", pytest.approx(1.0))]


def test_series_add_up_by_window_and_keep_the_most_used():
    """Turns 10 to 13 in windows of two; of thirty entities the twenty most used."""
    found = build_series([(10, "a", 1.0), (11, "a", 0.5), (13, "a", -1.0), (12, "b", 2.0)], 2)
    assert found["a"].tolist() == [1.5, -1.0]
    assert found["b"].tolist() == [0.0, 2.0]
    many = build_series([(0, f"e{i:02}", 1.0 + i) for i in range(30)], 1)
    assert set(many) == {f"e{i:02}" for i in range(30 - MAX_ENTITIES, 30)}
    assert build_series([], 1) == {}


def test_without_statsmodels_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'crabpath-retrievers\[influence\]'"):
        find_influences(planted(0))
