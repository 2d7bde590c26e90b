"""Which way knobs are turned, metric by metric, and never beyond their rails."""

import pytest

from crabpath_retrievers import Settings
from crabpath_retrievers.config import AutotuneSettings, LearningSettings, TierSettings
from crabpath_retrievers.config.autotune import KNOBS, Knobs
from crabpath_retrievers.config.health import METRICS, PAPER
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.maintenance.autotune import TuningHistory, decide_adjustments
from crabpath_retrievers.maintenance.autotune.decide import KNOB_TURNS, step_knob

MIDDLE = Knobs(half_life=200.0, promotion_threshold=4, hebbian_rate=0.06, reflex=0.88)
TIGHT = {"half_life": 1, "promotion_threshold": -1, "hebbian_rate": 1, "reflex": -1}
"""The direction of each knob that makes more of what was learned."""
MORE = {
    "avg_nodes_fired_per_query": ("half_life", "hebbian_rate"),
    "cross_file_edge_pct": ("promotion_threshold", "half_life"),
    "reflex_pct": ("reflex", "hebbian_rate"),
    "proto_promotion_rate": ("promotion_threshold",),
    "context_compression": ("reflex", "promotion_threshold"),
}
LESS = {
    "avg_nodes_fired_per_query": ("reflex", "hebbian_rate"),
    "cross_file_edge_pct": ("promotion_threshold", "half_life"),
    "reflex_pct": ("reflex", "hebbian_rate"),
    "proto_promotion_rate": ("promotion_threshold",),
    "context_compression": ("reflex", "promotion_threshold"),
    "reconvergence_rate": ("promotion_threshold", "half_life"),
}
# Here more of what was learned is less of what is measured.
DORMANT = ("half_life", "hebbian_rate")
CASES = [
    *((metric, -1, knobs, 1) for metric, knobs in MORE.items()),
    *((metric, 1, knobs, -1) for metric, knobs in LESS.items()),
    ("dormant_pct", 1, DORMANT, 1),
    ("dormant_pct", -1, DORMANT, -1),
]


@pytest.mark.parametrize(("metric", "way", "knobs", "learned"), CASES)
def test_signs(found, metric, way, knobs, learned):
    """A metric that is too low (-1) or too high (1) turns these knobs in that direction."""
    ranges = {**PAPER, metric: (0.4, 0.6)}
    report = found(ranges, **{metric: 0.5 + 0.3 * way})
    turned = decide_adjustments([report], MIDDLE, TuningHistory(), AutotuneSettings())
    assert {one.knob: one.direction for one in turned} == {k: learned * TIGHT[k] for k in knobs}
    assert {one.metric for one in turned} == {metric}
    for one in turned:
        assert (one.after - one.before) * one.direction > 0
        assert one.before == getattr(MIDDLE, one.knob)
        assert metric in one.why


def test_every_sign_is_one():
    """The table speaks of real metrics and knobs, each once, and never of both directions."""
    assert {metric for metric, _ in KNOB_TURNS} == set(METRICS)
    for turns in KNOB_TURNS.values():
        knobs = [turn.knob for turn in turns]
        assert len(set(knobs)) == len(knobs)
        assert set(knobs) <= set(KNOBS)
    for metric, side in KNOB_TURNS:
        other = KNOB_TURNS.get((metric, {"low": "high", "high": "low"}[side]), ())
        assert not set(KNOB_TURNS[metric, side]) & set(other)


@pytest.mark.parametrize("value", [0.5, None])
def test_what_is_well_or_not_judged_turns_nothing(found, value):
    report = found({"dormant_pct": (0.4, 0.6)}, dormant_pct=value)
    assert decide_adjustments([report], MIDDLE, TuningHistory(), AutotuneSettings()) == []


def test_no_knob_brings_back_what_the_index_lost(found):
    assert (
        decide_adjustments([found(orphan_nodes=3.0)], MIDDLE, TuningHistory(), AutotuneSettings())
        == []
    )


def test_two_knobs_at_once_at_most(found):
    report = found(avg_nodes_fired_per_query=0.0, dormant_pct=0.99, cross_file_edge_pct=0.0)
    for most in (1, 2, 4):
        turned = decide_adjustments(
            [report], MIDDLE, TuningHistory(), AutotuneSettings(max_changes=most)
        )
        assert len(turned) == len({one.knob for one in turned}) == most


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("direction", [-1, 1])
@pytest.mark.parametrize("knob", KNOBS)
def test_steps_are_bounded_and_end_at_the_rail(preset, knob, direction):
    rules = AutotuneSettings.preset(preset)
    low, high = rules.rails[knob]
    value, steps = getattr(MIDDLE, knob) if preset == "default" else (low + high) / 2, 0
    value = int(value) if knob == "promotion_threshold" else value
    while (after := step_knob(knob, direction, value, rules)) is not None:
        assert low <= after <= high
        assert (after - value) * direction > 0
        if knob == "half_life":
            assert (
                abs(after - value)
                <= max(rules.min_half_life_step, value * (rules.half_life_factor - 1)) + 1e-6
            )
        if knob == "promotion_threshold":
            assert isinstance(after, int)
            assert abs(after - value) == 1
        value, steps = after, steps + 1
    assert value == (high if direction > 0 else low)
    assert 0 < steps < 20


def test_the_half_life_rises_as_in_the_paper():
    rules, value, seen = AutotuneSettings.preset("paper"), 20.0, []
    while value is not None:
        seen.append(round(value))
        value = step_knob("half_life", 1, value, rules)
    assert seen[:4] == [20, 30, 40, 53]
    assert seen[-1] == 200


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"half_life": 19.9}, "half_life must be a number from 20 to 4000, not 19.9"),
        ({"half_life": float("nan")}, "half_life must be a number"),
        ({"promotion_threshold": 1}, "promotion_threshold must be a whole number from 2"),
        ({"promotion_threshold": 2.5}, "promotion_threshold must be a whole number from 2"),
        ({"hebbian_rate": 0.13}, "hebbian_rate must be a number from 0.01 to 0.12, not 0.13"),
        ({"reflex": True}, "reflex must be a number from 0.8 to 0.95, not True"),
        ({"reflex": "much"}, "reflex must be a number from 0.8 to 0.95, not 'much'"),
        ({"speed": 1.0}, "there is no knob 'speed': use half_life"),
    ],
)
def test_knobs_beyond_their_rails_are_refused(values, says):
    with pytest.raises(InvalidInputError, match=says) as told:
        AutotuneSettings().validate_knobs(values)
    assert "\n" not in str(told.value)


def test_an_unknown_preset_is_refused():
    with pytest.raises(InvalidInputError, match="unknown preset"):
        AutotuneSettings.preset("fast")


def test_knobs_that_start_beyond_their_rails_are_refused():
    paper = AutotuneSettings.preset("paper").replace(enabled=True)
    with pytest.raises(InvalidInputError, match="half_life must be a number from 20 to 200"):
        Settings(autotune=paper)
    assert Settings(autotune=paper, learning=LearningSettings(half_life=80.0)).autotune.enabled
    assert Settings(tiers=TierSettings(reflex=0.6)).tiers.reflex == 0.6
