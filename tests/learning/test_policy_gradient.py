"""The policy gradient against worked numbers and finite differences."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules import (
    assign_edge_credit,
    compute_policy_gradient,
)

# The OpenClawBrain paper §3: η = .1, γ = 1, z = 1, b = 0, τ = 1.
PAPER = LearningSettings(learning_rate=0.1, discount=1.0)
WEIGHTS = {"A": 0.5, "B": 0.3, "C": -0.2}
UNIT = LearningSettings(
    learning_rate=1.0, discount=1.0
)  # with z = 1 and b = 0, changes are ∇ log π
SUCCESS, FAILURE = Credit(1.0), Credit(-1.0)


def changes(turn, credit=SUCCESS, settings=PAPER, *, baseline=0.0, stop=0.0):
    """Changes of a turn by node and target, STOP as None."""
    deltas = compute_policy_gradient(turn, credit, baseline, settings, stop=stop)
    return {(delta.source, delta.target): delta.delta for delta in deltas}


def test_the_worked_table_of_the_paper(turn_of, step_of):
    """OpenClawBrain paper §3 to three decimals; changes sum to 0 and a failure turns them round."""
    paper = turn_of([step_of("s", WEIGHTS, ["A"])], returned=[("s", "A"), ("B",), ("C",)])
    judged = {"A": 1.0, "B": 0.0, "C": 0.0}
    found = changes(paper, Credit(1.0, documents=judged))
    expected = {"A": 0.066, "B": -0.028, "C": -0.017, None: -0.021}
    assert {target: round(delta, 3) for (_, target), delta in found.items()} == expected
    assert sum(found.values()) == pytest.approx(0, abs=1e-15)
    mirrored = {edge: -delta for edge, delta in found.items()}
    assert changes(paper, Credit(-1.0, documents=judged | {"A": -1.0})) == pytest.approx(mirrored)
    deltas = compute_policy_gradient(paper, Credit(1.0, documents=judged), 0.0, PAPER, stop=0.0)
    assert {delta[:3] for delta in deltas} == {("s", t, "link") for t in "ABC"} | {
        ("s", None, "stop")
    }
    # What nobody judged keeps its weight: not shown, or shown with no word about single documents.
    unseen = turn_of(paper.steps, returned=[("s", "A")])
    for turn, credit in ((unseen, Credit(1.0, documents={"A": 1.0})), (unseen, SUCCESS)):
        assert set(changes(turn, credit)) == {("s", "A"), ("s", None)}
    # Credit 0 moves nothing, wherever the baseline stands.
    unused = Credit(1.0, documents={"A": 0.0})
    assert changes(paper, unused, baseline=0.9) == changes(paper, unused, baseline=-0.9) == {}


def test_a_document_that_was_told_demonstrates_the_edge_that_was_not_followed(turn_of, step_of):
    """The policy steps towards it from STOP and what was shown in vain, not from the unseen."""
    turn = turn_of([step_of("s", WEIGHTS, ["A"])], returned=[("s", "A"), ("B",)])
    told = Credit(-1.0, documents={"A": 0.0, "B": 1.0}, added=frozenset("B"))
    found = changes(turn, told)
    assert found.keys() == {("s", "B"), ("s", "A"), ("s", None)}
    assert found["s", "B"] > 0 > max(found["s", "A"], found["s", None])
    assert changes(turn, replace(told, added=frozenset())) == found


def test_a_route_that_would_have_led_to_what_was_used_is_credited(turn_of, step_of):
    """C is found by a past turn: a, which the walk reached, and its edge to c are credited."""
    closed = step_of("a", {"c": 0.5}, [], hop=1)
    candidate = replace(closed.candidates[0], probability=0.0)
    back = step_of("c", {"a": 0.5}, [])
    steps = [step_of("s", {"a": 0.5}, ["a"]), replace(closed, candidates=(candidate,)), back]
    turn = turn_of(steps, [("c",), ("s", "a")], seeds=(("s", 0.9), ("c", 0.8)))
    used = Credit(1.0, documents={"c": 1.0, "a": 0.0})
    # Search alone made it an entry: no route was needed.
    assert changes(turn, used) == {}
    again = replace(turn.returned[0], features={"again": 1.0})
    turn = replace(turn, returned=(again, *turn.returned[1:]))
    found = changes(turn, used)
    # STOP was not preferred to an edge that was not on offer.
    assert found.keys() == {("s", "a"), ("s", None), ("a", "c")}
    assert min(found["s", "a"], found["a", "c"]) > 0
    # Nothing is known of single documents, or it was blamed: what was not followed did nothing.
    assert ("a", "c") not in changes(turn)
    assert ("a", "c") not in changes(turn, Credit(-1.0, documents={"c": -1.0}))


def test_a_reflex_falls_when_it_misleads(turn_of, step_of):
    """It was no decision, so a success teaches nothing; blame brings it back to be decided."""
    reflex = replace(
        step_of("s", {"a": 0.85}, [], tier="reflex"), reflexes=("a",), decided_by="reflex"
    )
    turn = turn_of([reflex], returned=[("s", "a")])
    assert changes(turn, Credit(1.0, documents={"a": 1.0})) == {}
    assert changes(turn, Credit(-1.0, documents={"a": -1.0}))["s", "a"] < 0


def test_who_decided_and_between_what(turn_of, step_of):
    """A reflex is no decision, a chat model's choice is; only habitual pointers compete."""
    own, shown = (
        changes(turn_of([step_of("s", WEIGHTS, ["A"], decided_by=who)], returned=[("s", "A")]))
        for who in ("policy", "chat_model")
    )
    assert own == shown
    step = step_of("s", {"a": 0.5}, "a")
    walked = replace(step_of("s", {"x": 0.9}).candidates[0], probability=0.0)
    others = [
        step_of("s", {"x": 0.9}, tier=tier).candidates[0] for tier in ("reflex", "inhibitory")
    ]
    for other in (walked, *others):
        turn = turn_of([replace(step, candidates=(*step.candidates, other))], [("s", "a")])
        assert set(changes(turn)) == {("s", "a"), ("s", None)}
    # To stop at once led to no document: nothing is known about it.
    turn = turn_of([step_of("s", {"a": 0.1}, stopped=True)], returned=[("s",)])
    assert changes(turn) == changes(turn, FAILURE) == {}


def test_temperature_baseline_weight_and_score_of_stop(turn_of, step_of):
    """π(a) = π(STOP) = 1/2 at r + w = .6 + .3 = STOP .7 + .2: .1 · .5 · (1 - .4) · .5 / .2."""
    step = step_of("s", {"a": 0.3}, "a", relevance={"a": 0.6}, stop_weight=0.2, temperature=0.2)
    turn = turn_of([step], returned=[("s", "a")])
    found = changes(turn, Credit(1.0, weight=0.5), baseline=0.4, stop=0.7)
    assert found == pytest.approx({("s", "a"): 0.075, ("s", None): -0.075})


def test_every_decision_of_a_route_is_credited_discounted_from_the_document(turn_of, step_of):
    """At equal choices the earlier decision gets γ times as much as the one that found it."""
    steps = [
        step_of("s", {"a": 0.5, "x": 0.4}, ["a"]),
        step_of("a", {"b": 0.5, "y": 0.4}, ["b"], hop=1),
    ]
    found = changes(turn_of(steps, [("s", "a", "b")]), settings=PAPER.replace(discount=0.9))
    assert found["s", "a"] == pytest.approx(0.9 * found["a", "b"])
    assert found["a", "b"] > 0


@pytest.mark.parametrize(
    "failure",
    [
        Credit(-1.0, documents={"d": -1.0}),
        Credit(-1.0, documents={"b": 0.0, "c": 0.0, "d": -1.0}),
        Credit(-1.0, documents={"d": 0.0}, irrelevant=frozenset("d")),
    ],
)
def test_a_failure_blames_every_decision_that_led_to_what_it_names(turn_of, step_of, failure):
    """As a success credits them; what was returned on the way and not used shields no decision."""
    route = ["a", "b", "c", "d"]
    steps = [
        step_of(node, {target: 0.5, "x": 0.4}, [target], hop=hop)
        for hop, (node, target) in enumerate(pairwise(route))
    ]
    returned = [tuple(route[: end + 1]) for end in range(1, len(route))]
    settings = PAPER.replace(discount=0.9)
    turn = turn_of(steps, returned)
    found = changes(turn, failure, settings=settings)
    won = changes(turn, Credit(1.0, documents={"d": 1.0}), settings=settings)
    assert found == pytest.approx({edge: -delta for edge, delta in won.items()})
    assert 0 > found["a", "b"] > found["b", "c"] > found["c", "d"]
    # What was useful on the way excuses the decisions that led to it.
    found = changes(turn, Credit(-1.0, documents={"b": 1.0, "d": -1.0}), settings=settings)
    assert found["a", "b"] > 0 > found["b", "c"]


def test_a_document_credited_by_another_route_is_no_competitor(turn_of, step_of):
    """T followed b, s did not: what became of b is not turned round at the pointer of s."""
    steps = [step_of("s", {"a": 0.5, "b": 0.4}, "a"), step_of("t", {"b": 0.5}, "b")]
    turn = turn_of(steps, returned=[("s", "a"), ("t", "b", "c")])
    assert ("s", "b") not in changes(turn)
    assert ("s", "b") not in changes(turn, FAILURE)


def log_probability(weights, drawn, stopped, temperature):
    """Of drawing these, then STOP, from weights by target and of STOP (None)."""
    logits = {target: weight / temperature for target, weight in weights.items()}
    total, gone = 0.0, set(drawn)
    for target in (*drawn, None) if stopped else drawn:
        left = [value for other, value in logits.items() if other not in gone or other == target]
        total += logits[target] - math.log(sum(math.exp(value) for value in left))
    return total


def finite_differences(weights, **options):
    """The numerical gradient of the log-probability, without what is 0."""
    width = 1e-6
    slopes = {
        target: (
            log_probability({**weights, target: weight + width}, **options)
            - log_probability({**weights, target: weight - width}, **options)
        )
        / (2 * width)
        for target, weight in weights.items()
    }
    return {target: slope for target, slope in slopes.items() if abs(slope) > 1e-6}


CHOICE = st.tuples(
    st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.integers(0, 5), st.booleans()
)


@given(CHOICE, st.floats(-1, 1), st.sampled_from([0.2, 1.0, 3.0]))
def test_it_is_the_gradient_of_the_log_probability(turn_of, step_of, choice, stop, temperature):
    """Central differences, for any draws with and without STOP; draws leave each other alone."""
    scores, last, stopped = choice
    weights = {f"d{n}": score for n, score in enumerate(scores)}
    drawn = list(weights)[: last + 1]
    step = step_of("s", weights, drawn, stopped=stopped, temperature=temperature)
    others = [target for target in weights if target not in drawn]
    turn = turn_of([step], [*[("s", target) for target in drawn], *[(t,) for t in others]])
    credit = Credit(1.0, documents={t: float(t in drawn) for t in weights})
    options = {"drawn": drawn, "stopped": stopped, "temperature": temperature}
    expected = finite_differences({**weights, None: stop}, **options)
    found = changes(turn, credit, UNIT.replace(learning_rate=0.1), stop=stop)
    scaled = {target: 10 * delta for (_, target), delta in found.items()}
    for target in weights | {None: stop}:
        assert scaled.get(target, 0.0) == pytest.approx(expected.get(target, 0.0), abs=1e-5)


AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")


@pytest.mark.parametrize(
    ("routes", "known", "decided", "expected"),
    [
        # The last decision led to the document itself, those before are one and two hops away.
        (["abcd"], {"d": 1.0}, {AB, BC, CD}, {AB: (1, 2), BC: (1, 1), CD: (1, 0)}),
        # A reflex, or a last pointer that was not followed, still counts as a hop.
        (["abcd"], {"d": 1.0}, {AB}, {AB: (1, 2)}),
        # One useful document outweighs a blamed one; of equals the nearer counts.
        (
            ["ab", "abc", "abcd"],
            {"b": -1.0, "c": 0.5, "d": 0.5},
            {AB, BC},
            {AB: (0.5, 1), BC: (0.5, 0)},
        ),
        # A search hit credits no decision.
        (["a"], {"a": 1.0}, {AB}, {}),
    ],
)
def test_credit_of_decisions(turn_of, routes, known, decided, expected):
    paths = [tuple(pairwise(route)) for route in routes]
    assert assign_edge_credit(paths, known, decided) == expected


FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=0, exclude_min=True)


@given(FINITE, st.floats(0, 100), st.floats(-1e300, 1e300), st.floats(-1, 1), st.floats(-1, 1))
def test_it_does_no_harm(turn_of, step_of, temperature, rate, stop, z, baseline):
    """However extreme the settings: weight is redistributed, and signs follow the credit.

    STOP is drawn last in a success and never blamed; what led to nothing known is left alone.
    """
    step = step_of(
        "s", {"a": -0.5, "x": 0.5, "b": 0.1}, "ab", stopped=True, temperature=temperature
    )
    turn = turn_of([step], returned=[("s", "a"), ("b",)])
    settings = LearningSettings(learning_rate=rate)
    found = changes(turn, Credit(z), settings, baseline=baseline, stop=stop)
    assert all(abs(delta) <= 2 * 2 and delta for delta in found.values())  # in two draws
    assert sum(found.values()) == pytest.approx(0, abs=1e-12)
    assert found.get(("s", "a"), 0.0) * z >= 0
    assert found.get(("s", "x"), 0.0) * z <= 0
    assert ("s", "b") not in found
    if z < 0:
        assert found.get(("s", None), 0.0) >= 0
    assert changes(turn, Credit(z, 0.0), settings, baseline=baseline, stop=stop) == {}
    assert changes(turn, Credit(z, documents={"other": z}), settings, stop=stop) == {}
