"""What helped is preferred, what failed is left; the brake goes back to what was good."""

import pytest

from crabpath_retrievers.config import AutotuneSettings
from crabpath_retrievers.config.autotune import Knobs
from crabpath_retrievers.maintenance.autotune import TuningHistory, decide_adjustments
from crabpath_retrievers.maintenance.autotune.decide import BRAKE, GoodState

RULES = AutotuneSettings()
KNOBS = Knobs(half_life=200.0, promotion_threshold=4, hebbian_rate=0.06, reflex=0.88)
OTHER = Knobs(half_life=20.0, promotion_threshold=4, hebbian_rate=0.02, reflex=0.88)
LONGER, STRONGER = ("dormant_pct", "half_life", 1), ("dormant_pct", "hebbian_rate", 1)


def turned(report, past, knobs=KNOBS, before=(), rules=RULES):
    return [one.knob for one in decide_adjustments([*before, report], knobs, past, rules)]


def test_what_helped_is_preferred_and_what_failed_comes_last(found):
    report = found(dormant_pct=0.99)
    assert turned(report, TuningHistory()) == ["half_life", "hebbian_rate"]
    assert turned(report, TuningHistory({STRONGER: (1.0, 0.0)})) == ["hebbian_rate", "half_life"]
    assert turned(report, TuningHistory({LONGER: (0.0, 2.0)})) == ["hebbian_rate", "half_life"]
    assert turned(report, TuningHistory({LONGER: (0.0, 4.0)})) == ["hebbian_rate"]
    assert turned(report, TuningHistory({LONGER: (0.0, 4.0), STRONGER: (0.0, 4.0)})) == []


def test_of_two_wishes_for_one_knob_the_more_promising_wins(found):
    """Too few fire and too much crosses: both want the half-life, in opposite directions."""
    paper = {"cross_file_edge_pct": (0.0, 0.15)}
    report = found(paper, avg_nodes_fired_per_query=0.0, cross_file_edge_pct=0.9)
    rules = AutotuneSettings(max_changes=4)

    def direction(past):
        return {
            one.knob: one.direction for one in decide_adjustments([report], KNOBS, past, rules)
        }["half_life"]

    assert direction(TuningHistory()) == 1
    assert direction(TuningHistory({("cross_file_edge_pct", "half_life", -1): (2.0, 0.0)})) == -1


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
    adjusted = decide_adjustments([first], KNOBS, TuningHistory(), AutotuneSettings(max_changes=1))
    past = TuningHistory().after(first, KNOBS, adjusted, 25, RULES)
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


def test_the_brake_at_brain_death(found):
    """Everything is dormant: back to the knobs of the last good state, all of them at once."""
    past = TuningHistory(good=GoodState(KNOBS, 0, 25))
    adjusted = decide_adjustments([found(dormant_pct=1.0)], OTHER, past, RULES)
    assert {one.knob: one.after for one in adjusted} == {"half_life": 200.0, "hebbian_rate": 0.06}
    assert {one.metric for one in adjusted} == {BRAKE}
    assert all(one.why == "dormant_pct is 1, above 0.95" for one in adjusted)


def test_the_brake_where_three_metrics_left_their_range(found):
    """Counted from the best of the last reports; two are not enough, and old ones do not count."""
    past = TuningHistory(good=GoodState(KNOBS, 0, 25))
    two = found(reflex_pct=0.9, proto_promotion_rate=0.99)
    three = found(reflex_pct=0.9, proto_promotion_rate=0.99, dormant_pct=0.97)
    assert {one.metric for one in decide_adjustments([found(), three], OTHER, past, RULES)} == {
        BRAKE
    }
    assert BRAKE not in {
        one.metric for one in decide_adjustments([found(), two], OTHER, past, RULES)
    }
    long_ago = [found(), *[three] * RULES.window_reports, three]
    assert BRAKE not in {one.metric for one in decide_adjustments(long_ago, OTHER, past, RULES)}


def test_no_brake_that_mends_nothing(found):
    past = TuningHistory(good=GoodState(OTHER.replace(reflex=0.8), 0, 25))
    assert turned(found(dormant_pct=1.0), past, OTHER) == ["half_life", "hebbian_rate"]


def test_without_anything_good_knobs_are_turned_step_by_step(found):
    report = found(dormant_pct=1.0)
    assert turned(report, TuningHistory(), OTHER) == ["half_life", "hebbian_rate"]
    assert turned(report, TuningHistory(good=GoodState(OTHER, 0, 25)), OTHER) == [
        "half_life",
        "hebbian_rate",
    ]


def test_rest_after_a_brake(found):
    """One look passes, so that it can take effect; then knobs are turned again."""
    dead, past = found(dormant_pct=1.0), TuningHistory(good=GoodState(KNOBS, 0, 25))
    adjusted = decide_adjustments([dead], OTHER, past, RULES)
    past = past.after(dead, OTHER, adjusted, 50, RULES).score_pending(dead, RULES)
    assert decide_adjustments([dead], KNOBS, past, RULES) == []
    past = past.after(dead, KNOBS, [], 75, RULES)
    assert past.good is not None
    past = past.score_pending(dead, RULES)
    assert turned(dead, past) == ["half_life", "hebbian_rate"]
    assert past.after(dead, KNOBS, [], 100, RULES).good is None


def test_what_is_good(found):
    """As many in range as ever, and not dormant; a worse state does not take its place."""
    well, worse = found(), found(reflex_pct=0.9)
    past = TuningHistory().after(worse, OTHER, [], 25, RULES)
    assert past.good == GoodState(OTHER, 1, 25)
    past = past.after(well, KNOBS, [], 50, RULES)
    assert past.good == GoodState(KNOBS, 0, 50)
    assert past.after(worse, OTHER, [], 75, RULES).good == past.good
    assert TuningHistory().after(found(dormant_pct=1.0), KNOBS, [], 25, RULES).good is None


@pytest.mark.parametrize("text", ["{", "[]", '{"state": [1]}', "null"])
def test_a_past_that_cannot_be_read_is_forgotten(text):
    assert TuningHistory.from_json(text) == TuningHistory()
