"""What the policy gradient keeps to for any turn: do no harm (design, P6)."""

import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.policy_gradient import (
    compute_policy_gradient,
    score_function,
)

REWARD = st.one_of(st.just(0.0), st.floats(-1, 1))
SUCCESS, FAILURE = (st.one_of(st.just(0.0), st.floats(*r)) for r in ((0.1, 1), (-1, -0.1)))
BASELINE = st.one_of(st.just(0.0), st.floats(-1, 1))
NUMBER = st.floats(-1, 1)
RULES = st.sampled_from(["full", "myopic", "heuristic"])
NODES = [f"n{n}" for n in range(8)]
DECIDERS = st.sampled_from(["policy", "policy", "policy", "chat_model", "reflex"])


@st.composite
def turns(draw, step_of, turn_of):
    """A walk from one seed: decisions, and documents with the routes by which it reached them."""
    routes, frontier, steps = {"s": ("s",)}, ["s"], []
    for _ in range(draw(st.integers(1, 4))):
        if not frontier:
            break
        node = frontier.pop(draw(st.integers(0, len(frontier) - 1)))
        offered = draw(st.lists(st.sampled_from(NODES), unique=True, min_size=2, max_size=5))
        fresh = [target for target in offered if target not in routes]
        chosen = fresh[: draw(st.integers(1, 3))]
        steps.append(
            step_of(
                node,
                {target: draw(NUMBER) for target in offered},
                chosen,
                relevance={target: draw(NUMBER) for target in offered},
                stopped=draw(st.booleans()),
                stop_weight=draw(NUMBER),
                temperature=draw(st.floats(0.05, 5)),
                decided_by=draw(DECIDERS),
            )
        )
        # A document that was pointed at and not entered may be returned with its route as well.
        routes |= {target: (*routes[node], target) for target in fresh}
        frontier += chosen
    hidden = draw(st.sets(st.sampled_from(sorted(routes)), max_size=3))
    return turn_of(steps, [routes[node] for node in sorted(set(routes) - hidden)])


@st.composite
def learned(draw, step_of, turn_of, credits_, rules):
    """A turn, what became of it, and the changes."""
    turn = draw(turns(step_of, turn_of))
    nodes = [item.node for item in turn.returned]
    finer = {node: draw(credits_) for node in nodes if draw(st.booleans())}
    credit = Credit(draw(credits_), draw(st.floats(0.1, 1)), finer)
    settings = LearningSettings(
        credit_rule=draw(rules),
        learning_rate=draw(st.floats(0.01, 1)),
        discount=draw(st.floats(0.1, 1)),
    )
    deltas = compute_policy_gradient(turn, credit, draw(BASELINE), settings, stop=draw(NUMBER))
    return turn, credit, deltas


@pytest.fixture(scope="session")
def any_learned(step_of, turn_of):
    """Any turn with any credit, or with credit of a given range and under given rules."""

    def build(credits_=REWARD, rules=RULES):
        return learned(step_of, turn_of, credits_, rules)

    return build


def followed(turn):
    """Pointers that were followed by decision."""
    return {
        (step.node, target)
        for step in turn.steps
        if step.decided_by != "reflex"
        for target in step.chosen
    }


def verdicts(turn, credit):
    """The credits behind every followed pointer, worked out from the routes."""
    found = defaultdict(list)
    for item in turn.returned:
        known = credit.documents or dict.fromkeys([item.node], credit.outcome)
        for edge in item.path:
            if item.node in known and (edge.source, edge.target) in followed(turn):
                found[edge.source, edge.target].append(known[item.node])
    return found


@given(st.data())
def test_a_positive_credit_never_lowers_and_a_negative_one_never_raises(any_learned, data):
    """Whatever else happened in the turn, to pointers that led to a credited document."""
    turn, credit, deltas = data.draw(any_learned())
    found = verdicts(turn, credit)
    for delta in deltas:
        behind = found.get((delta.source, delta.target))
        if behind and delta.target:
            assert delta.delta * max(behind) >= 0


@given(st.data())
def test_a_failure_blames_only_what_was_followed(any_learned, data):
    """No pointer falls but those that were followed to a blamed document; STOP never falls."""
    turn, credit, deltas = data.draw(any_learned(FAILURE))
    falling = {delta[:2] for delta in deltas if delta.delta < 0}
    assert falling <= {move for move, behind in verdicts(turn, credit).items() if max(behind) < 0}


@given(st.data())
def test_a_success_lowers_nothing_that_was_followed(any_learned, data):
    """Followed pointers rise or stay; only what was not followed, and STOP, may give way."""
    turn, _, deltas = data.draw(any_learned(SUCCESS))
    falling = {delta[:2] for delta in deltas if delta.delta < 0}
    assert not falling & followed(turn)


@given(st.data())
def test_changes_of_every_node_sum_to_zero(any_learned, data):
    """Weight is redistributed, never made (the OpenClawBrain paper §3)."""
    _, _, deltas = data.draw(any_learned(rules=st.sampled_from(["full", "myopic"])))
    sums = defaultdict(float)
    for delta in deltas:
        sums[delta.source] += delta.delta
    assert all(total == pytest.approx(0, abs=1e-12) for total in sums.values())


@given(st.data())
def test_changes_are_finite_and_each_edge_changes_once(any_learned, data):
    """Nothing overflows, and no edge is named twice."""
    _, _, deltas = data.draw(any_learned())
    assert all(math.isfinite(delta.delta) and delta.delta for delta in deltas)
    assert len({delta[:3] for delta in deltas}) == len(deltas)


FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=0, exclude_min=True)


@given(FINITE, st.floats(0, 100), st.floats(-1e300, 1e300))
def test_no_temperature_or_rate_overflows(turn_of, step_of, temperature, rate, stop):
    """However extreme the settings, no draw moves a weight by more than its whole range."""
    step = step_of("s", {"a": -0.5, "x": 0.5}, "a", temperature=temperature)
    settings = LearningSettings(learning_rate=rate)
    turn = turn_of([step], returned=[("s", "a")])
    deltas = [
        d.delta for d in compute_policy_gradient(turn, Credit(1.0), -1.0, settings, stop=stop)
    ]
    assert all(abs(delta) <= 2 for delta in deltas)
    assert sum(deltas) == pytest.approx(0, abs=1e-12)


@given(st.lists(NUMBER, min_size=1, max_size=5), st.floats(0.05, 2))
def test_updates_vanish_as_the_policy_is_certain(scores, temperature):
    """With the chosen score 40 τ above the others, π is 1 and nothing is left to learn."""
    ahead = max(scores) + 40 * temperature
    assert abs(score_function([ahead, *scores], temperature)).max() < 1e-15
    near = score_function([max(scores), *scores], temperature)
    further = score_function([max(scores) + temperature, *scores], temperature)
    assert further[0] < near[0]


@given(st.data())
def test_a_credit_without_weight_changes_nothing(step_of, turn_of, data):
    """What does not count teaches nothing."""
    turn = data.draw(turns(step_of, turn_of))
    credit = Credit(data.draw(REWARD), weight=0.0)
    assert compute_policy_gradient(turn, credit, 0.0, LearningSettings(), stop=0.6) == []
