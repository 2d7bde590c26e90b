"""Decides which knobs to change: a pure function of health reports, knobs and tuning history."""

from collections.abc import Sequence
from typing import NamedTuple

from crabpath_retrievers.autotune.past import (
    BRAKE,
    Adjustment,
    TuningHistory,
    count_lost_metrics,
    find_side,
)
from crabpath_retrievers.autotune.signs import KNOB_TURNS, KnobTurn
from crabpath_retrievers.config.autotune import KNOBS, AutotuneSettings, Knobs
from crabpath_retrievers.health.report import HealthReport, Metric

_DECIMALS = 6


class _Wish(NamedTuple):
    """A candidate change of a knob; the most promising one sorts first."""

    doubt: float
    place: int
    number: int
    turn: KnobTurn
    metric: Metric


def decide_adjustments(
    reports: Sequence[HealthReport], knobs: Knobs, past: TuningHistory, settings: AutotuneSettings
) -> list[Adjustment]:
    """Decide which knobs to change, at most ``settings.max_changes``; none if all metrics are well.

    Args:
        reports: Health reports of one namespace, oldest first, the current one last.
        knobs: Current knobs, within their limits.
        past: Tuning history, with the changes of the last run scored.
        settings: Limits, steps, and when to apply the brake.
    """
    if not reports or past.rest:
        return []
    now, before = reports[-1], reports[-1 - settings.window_reports : -1]
    return decide_rollback(now, before, knobs, past, settings) or _choose_adjustments(
        now, knobs, past, settings
    )


def decide_rollback(
    now: HealthReport,
    before: Sequence[HealthReport],
    knobs: Knobs,
    past: TuningHistory,
    settings: AutotuneSettings,
) -> list[Adjustment]:
    """Go back to the last good knobs, if health got much worse and that may help.

    Args:
        now: Current health report.
        before: Earlier health reports.
        knobs: Current knobs.
        past: Tuning history with the last good state.
        settings: Limits, and how much worse health must be.
    """
    dormant, lost = now["dormant_pct"], count_lost_metrics(before, now)
    dead = dormant.in_range is False and (dormant.value or 0.0) >= settings.brake_dormant_share
    if past.good is None or not (dead or lost >= settings.brake_metrics):
        return []
    why = _explain(dormant) if dead else f"{lost} metrics have left their range"
    found = []
    for name in KNOBS:
        low, high = settings.rails[name]
        value, good = getattr(knobs, name), getattr(past.good.knobs, name)
        after = min(max(good, low), high)
        if after != value:
            direction = 1 if after > value else -1
            found.append(Adjustment(BRAKE, name, direction, value, after, why))
    # If no metric asks for such a change, the old knobs did not make the difference.
    ailing = (dormant,) if dead else now.metrics
    asked = {wish.turn for wish in _rank_wishes(ailing, past)}
    return found if any((one.knob, one.direction) in asked for one in found) else []


def _choose_adjustments(
    now: HealthReport, knobs: Knobs, past: TuningHistory, settings: AutotuneSettings
) -> list[Adjustment]:
    """Choose the most promising changes, at most one per knob."""
    found: dict[str, Adjustment] = {}
    for wish in _rank_wishes(now.metrics, past):
        knob, direction = wish.turn
        if len(found) == settings.max_changes or 1.0 - wish.doubt < settings.min_success_chance:
            break
        value = getattr(knobs, knob)
        after = step_knob(knob, direction, value, settings)
        if knob not in found and after is not None:
            why = _explain(wish.metric)
            found[knob] = Adjustment(wish.metric.name, knob, direction, value, after, why)
    return list(found.values())


def _rank_wishes(metrics: Sequence[Metric], past: TuningHistory) -> list[_Wish]:
    """Rank changes for metrics out of range: those that helped before, then the most direct."""
    wishes = [
        _Wish(1.0 - past.help_probability((metric.name, *turn)), place, number, turn, metric)
        for number, metric in enumerate(metrics)
        if metric.in_range is False
        for place, turn in enumerate(KNOB_TURNS.get((metric.name, find_side(metric)), ()))
    ]
    return sorted(wishes, key=lambda wish: wish[:3])


def step_knob(knob: str, direction: int, value: float, settings: AutotuneSettings) -> float | None:
    """Return the value of a knob after one step, within its limits; None if it cannot move.

    Args:
        knob: Name of the knob.
        direction: 1 for up, -1 for down.
        value: Current value.
        settings: Steps and limits.
    """
    low, high = settings.rails[knob]
    after = min(max(value + direction * _step_size(knob, direction, value, settings), low), high)
    after = int(after) if knob == "promotion_threshold" else round(after, _DECIMALS)
    return after if (after - value) * direction > 0 else None


def _step_size(knob: str, direction: int, value: float, settings: AutotuneSettings) -> float:
    if knob == "half_life":
        share = (
            settings.half_life_factor - 1.0
            if direction > 0
            else 1.0 - 1.0 / settings.half_life_factor
        )
        return max(settings.min_half_life_step, value * share)
    steps = {"hebbian_rate": settings.hebbian_step, "reflex": settings.reflex_step}
    return steps.get(knob, 1)


def _explain(metric: Metric) -> str:
    low = find_side(metric) == "low"
    bound = metric.low if low else metric.high
    return f"{metric.name} is {metric.value:g}, {'below' if low else 'above'} {bound:g}"
