"""Which knobs are turned, which way and how far; what helped is preferred, what failed is left."""

import pytest

from crabpath_retrievers import Knobs, Settings
from crabpath_retrievers.config import (
    AutotuneSettings,
    HealthSettings,
    LearningSettings,
    TierSettings,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.operation.maintenance import (
    TuningHistory,
    decide_adjustments,
)

RULES = AutotuneSettings()
PAPER = HealthSettings.preset("paper").ranges
MIDDLE = Knobs(half_life=200.0, promotion_threshold=4, hebbian_rate=0.06, reflex=0.88)
OTHER = Knobs(half_life=20.0, promotion_threshold=4, hebbian_rate=0.02, reflex=0.88)
LONGER, STRONGER = "dormant_pct half_life +1", "dormant_pct hebbian_rate +1"
# The direction of each knob that makes more of what was learned.
MORE = {"half_life": 1, "promotion_threshold": -1, "hebbian_rate": 1, "reflex": -1}
CASES = [
    ("avg_nodes_fired_per_query", ("low",), ("half_life", "hebbian_rate")),
    ("avg_nodes_fired_per_query", ("high",), ("reflex", "hebbian_rate")),
    ("cross_file_edge_pct", ("low", "high"), ("promotion_threshold", "half_life")),
    ("reflex_pct", ("low", "high"), ("reflex", "hebbian_rate")),
    ("proto_promotion_rate", ("low", "high"), ("promotion_threshold",)),
    ("context_compression", ("low", "high"), ("reflex", "promotion_threshold")),
    ("reconvergence_rate", ("high",), ("promotion_threshold", "half_life")),
    ("dormant_pct", ("low", "high"), ("half_life", "hebbian_rate")),
]


def decide(*reports, knobs=MIDDLE, past=None, rules=RULES):
    return decide_adjustments(list(reports), knobs, past or TuningHistory(), rules)


def turned(report, past=None, knobs=MIDDLE):
    return [one.knob for one in decide(report, knobs=knobs, past=past)]


@pytest.mark.parametrize(
    ("metric", "side", "knobs"),
    [(metric, side, knobs) for metric, sides, knobs in CASES for side in sides],
)
def test_a_metric_beyond_its_range_turns_its_knobs(found, metric, side, knobs):
    """Too low it wants more of what was learned; but where less is dormant, less is learned."""
    way = 1 if side == "high" else -1
    learned = way if metric == "dormant_pct" else -way
    adjusted = decide(found({**PAPER, metric: (0.4, 0.6)}, **{metric: 0.5 + 0.3 * way}))
    assert {one.knob: one.direction for one in adjusted} == {k: learned * MORE[k] for k in knobs}
    assert {one.metric for one in adjusted} == {metric}
    for one in adjusted:
        assert (one.after - one.before) * one.direction > 0
        assert one.before == getattr(MIDDLE, one.knob)
        assert metric in one.why


def test_so_many_knobs_at_once_at_most(found):
    report = found(avg_nodes_fired_per_query=0.0, dormant_pct=0.99, cross_file_edge_pct=0.0)
    for most in (1, 2, 4):
        adjusted = decide(report, rules=AutotuneSettings(max_changes=most))
        assert len(adjusted) == len({one.knob for one in adjusted}) == most


def test_what_turns_nothing(found):
    """Not judged is no illness, and no knob brings back what the index lost."""
    for values in ({"dormant_pct": 0.5}, {"dormant_pct": None}, {"orphan_nodes": 3.0}):
        assert decide(found({"dormant_pct": (0.4, 0.6)}, **values)) == []


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        ({}, ["half_life", "hebbian_rate"]),
        ({STRONGER: (1.0, 0.0)}, ["hebbian_rate", "half_life"]),
        ({LONGER: (0.0, 2.0)}, ["hebbian_rate", "half_life"]),
        ({LONGER: (0.0, 4.0)}, ["hebbian_rate"]),
        ({LONGER: (0.0, 4.0), STRONGER: (0.0, 4.0)}, []),
    ],
)
def test_what_helped_is_preferred_and_what_failed_comes_last(found, past, expected):
    assert turned(found(dormant_pct=0.99), TuningHistory(past)) == expected


@pytest.mark.parametrize(
    ("past", "direction"), [({}, 1), ({"cross_file_edge_pct half_life -1": (2.0, 0.0)}, -1)]
)
def test_of_two_wishes_for_one_knob_the_more_promising_wins(found, past, direction):
    """Too few fire and too much crosses: both want the half-life, in opposite directions."""
    paper = {"cross_file_edge_pct": (0.0, 0.15)}
    report = found(paper, avg_nodes_fired_per_query=0.0, cross_file_edge_pct=0.9)
    adjusted = decide(report, past=TuningHistory(past), rules=AutotuneSettings(max_changes=4))
    assert {one.knob: one.direction for one in adjusted}["half_life"] == direction


@pytest.mark.parametrize(
    ("later", "counts"),
    [
        ({"dormant_pct": 0.96}, (1.0, 0.0)),
        ({"dormant_pct": 0.5}, (1.0, 0.0)),
        ({"dormant_pct": 1.0}, (0.0, 1.0)),
        ({"dormant_pct": 0.98}, (0.0, 0.5)),
        ({"dormant_pct": 0.96, "reflex_pct": 0.9}, (0.0, 1.0)),
        ({"dormant_pct": None}, None),
    ],
)
def test_what_becomes_of_a_turn_is_learned(found, later, counts):
    """Nearer to the range is a success, unless another metric has left its own."""
    first = found(dormant_pct=0.98)
    adjusted = decide_adjustments([first], MIDDLE, TuningHistory(), AutotuneSettings(max_changes=1))
    past = TuningHistory().after(first, MIDDLE, adjusted, 25, RULES)
    known = past.score_pending(found(**later), RULES)
    assert known.evidence.get(LONGER) == counts
    assert known.pending == ()
    assert TuningHistory.from_json(known.to_json()) == known


def test_what_is_known_fades(found):
    past = TuningHistory({LONGER: (0.0, 4.0)})
    assert past.help_probability(LONGER) < RULES.min_success_chance
    for _ in range(10):
        past = past.score_pending(found(), RULES)
    assert RULES.min_success_chance < past.help_probability(LONGER) < 0.5


def test_the_brake(found):
    """At brain death, or where three metrics left their range, back to the last good knobs.

    Counted from the best of the last reports; two are not enough, and old ones do not count.
    """
    past = TuningHistory(good=(MIDDLE, 0))
    two = found(reflex_pct=0.9, proto_promotion_rate=0.99)
    three = found(reflex_pct=0.9, proto_promotion_rate=0.99, dormant_pct=0.97)

    def brakes(*reports):
        adjusted = decide(*reports, knobs=OTHER, past=past)
        return "brake" in {one.metric for one in adjusted}

    assert brakes(found(), three)
    assert not brakes(found(), two)
    assert not brakes(found(), *[three] * RULES.window_reports, three)
    dead = decide(found(dormant_pct=1.0), knobs=OTHER, past=past)
    assert {one.knob: one.after for one in dead} == {"half_life": 200.0, "hebbian_rate": 0.06}
    assert {(one.metric, one.why) for one in dead} == {("brake", "dormant_pct is 1, above 0.95")}


@pytest.mark.parametrize("good", [None, OTHER, OTHER.replace(reflex=0.8)])
def test_without_anything_to_go_back_to_knobs_are_turned_step_by_step(found, good):
    """Nothing was good, or it stands, or it differs in what has nothing to do with it."""
    past = TuningHistory(good=(good, 0) if good else None)
    assert turned(found(dormant_pct=1.0), past, OTHER) == ["half_life", "hebbian_rate"]


def test_rest_after_a_brake(found):
    """One look passes, so that it can take effect; then knobs are turned again."""
    dead, past = found(dormant_pct=1.0), TuningHistory(good=(MIDDLE, 0))
    adjusted = decide_adjustments([dead], OTHER, past, RULES)
    past = past.after(dead, OTHER, adjusted, 50, RULES).score_pending(dead, RULES)
    assert decide_adjustments([dead], MIDDLE, past, RULES) == []
    past = past.after(dead, MIDDLE, [], 75, RULES)
    assert past.good is not None
    past = past.score_pending(dead, RULES)
    assert turned(dead, past) == ["half_life", "hebbian_rate"]
    assert past.after(dead, MIDDLE, [], 100, RULES).good is None


def test_what_is_good(found):
    """As many in range as ever, and not dormant; a worse state does not take its place."""
    well, worse = found(), found(reflex_pct=0.9)
    past = TuningHistory().after(worse, OTHER, [], 25, RULES)
    assert past.good == (OTHER, 1)
    past = past.after(well, MIDDLE, [], 50, RULES)
    assert past.good == (MIDDLE, 0)
    assert past.after(worse, OTHER, [], 75, RULES).good == past.good
    assert TuningHistory().after(found(dormant_pct=1.0), MIDDLE, [], 25, RULES).good is None


@pytest.mark.parametrize("text", ["{", "[]", '{"ill": "x"}', "null", None])
def test_a_past_that_cannot_be_read_is_forgotten(text):
    assert TuningHistory.from_json(text) == TuningHistory()


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("direction", [-1, 1])
@pytest.mark.parametrize("knob", Knobs.model_fields)
def test_steps_are_bounded_and_end_at_the_rail(found, preset, knob, direction):
    rules = AutotuneSettings.preset(preset)
    low, high = rules.rails[knob]
    seen = [getattr(MIDDLE, knob) if preset == "default" else type(low)((low + high) / 2)]
    # A wish for less of what was learned, or for more, which each of these knobs can fulfil.
    metric = "proto_promotion_rate" if knob == "promotion_threshold" else "reflex_pct"
    metric = "dormant_pct" if knob == "half_life" else metric
    more = MORE[knob] * direction > 0
    value = 0.99 if more == (metric == "dormant_pct") else 0.0
    report = found({**PAPER, metric: (0.4, 0.6)}, **{metric: value})

    def step(at):
        middle = {name: sum(rails) / 2 for name, rails in rules.rails.items()}
        middle["promotion_threshold"] = int(middle["promotion_threshold"])
        turned = decide(report, knobs=Knobs(**{**middle, knob: at}), rules=rules)
        return next((one.after for one in turned if one.knob == knob), None)

    while (after := step(seen[-1])) is not None:
        assert (after - seen[-1]) * direction > 0
        most = {"half_life": seen[-1] * (rules.half_life_factor - 1), "promotion_threshold": 1}
        assert (
            abs(after - seen[-1]) <= max(10.0 * (knob == "half_life"), most.get(knob, 0.02)) + 1e-6
        )
        seen.append(after)
    assert seen[-1] == (high if direction > 0 else low)
    assert 1 < len(seen) < 20


@pytest.mark.parametrize(
    ("knob", "value", "says"),
    [
        ("half_life", 19.9, "must be a number from 20 to 4000, not 19.9"),
        ("half_life", float("nan"), "must be a number"),
        ("promotion_threshold", 1, "must be a whole number from 2"),
        ("promotion_threshold", 2.5, "must be a whole number from 2"),
        ("reflex", True, "must be a number from 0.8 to 0.95, not True"),
        ("reflex", "much", "must be a number from 0.8 to 0.95, not 'much'"),
    ],
)
def test_knobs_beyond_their_rails_are_refused(knob, value, says):
    with pytest.raises(InvalidInputError, match=f"^{knob} {says}.*$"):
        AutotuneSettings().validate_knobs({knob: value})


def test_presets_and_knobs_that_start_beyond_their_rails_are_refused():
    with pytest.raises(InvalidInputError, match="unknown preset"):
        AutotuneSettings.preset("fast")
    paper = AutotuneSettings.preset("paper").replace(enabled=True)
    with pytest.raises(InvalidInputError, match="half_life must be a number from 20 to 200"):
        Settings(autotune=paper)
    assert Settings(autotune=paper, learning=LearningSettings(half_life=80.0)).autotune.enabled
    assert Settings(tiers=TierSettings(reflex=0.6)).tiers.reflex == 0.6
