"""What to turn: a pure function of reports, knobs and what is known of turning them."""

from collections.abc import Sequence
from typing import NamedTuple

from crabpath_retrievers.autotune.past import BRAKE, Adjustment, Past, fallen, side
from crabpath_retrievers.autotune.signs import SIGNS, Turn
from crabpath_retrievers.config.autotune import KNOBS, AutotuneSettings, Knobs
from crabpath_retrievers.health.report import HealthReport, Metric

_DIGITS = 6


class _Wish(NamedTuple):
    """A turn that a metric asks for; sorted, the best one comes first."""

    doubt: float
    place: int
    number: int
    turn: Turn
    metric: Metric


def tune(
    reports: Sequence[HealthReport], knobs: Knobs, past: Past, settings: AutotuneSettings
) -> list[Adjustment]:
    """Which knobs to turn, at most ``settings.max_changes``; none while all that is judged is well.

    Args:
        reports: On the health of one namespace, oldest first; the last one is how it is now.
        knobs: As they stand, within their rails.
        past: What earlier looks have left, that of the last one judged.
        settings: Rails, steps, and when to brake.
    """
    if not reports or past.rest:
        return []
    now, before = reports[-1], reports[-1 - settings.window_reports : -1]
    return brake(now, before, knobs, past, settings) or _turned(now, knobs, past, settings)


def brake(
    now: HealthReport,
    before: Sequence[HealthReport],
    knobs: Knobs,
    past: Past,
    settings: AutotuneSettings,
) -> list[Adjustment]:
    """Back to the last known good knobs, where a memory got much worse and that may mend it.

    Args:
        now: How it is.
        before: How it was lately.
        knobs: As they stand.
        past: Knows what was good.
        settings: Rails, and what is much worse.
    """
    dormant, lost = now["dormant_pct"], fallen(before, now)
    dead = dormant.in_range is False and (dormant.value or 0.0) >= settings.brake_dormant_share
    if past.good is None or not (dead or lost >= settings.brake_metrics):
        return []
    why = _why(dormant) if dead else f"{lost} metrics have left their range"
    found = []
    for name in KNOBS:
        low, high = settings.rails[name]
        value, good = getattr(knobs, name), getattr(past.good.knobs, name)
        after = min(max(good, low), high)
        if after != value:
            direction = 1 if after > value else -1
            found.append(Adjustment(BRAKE, name, direction, value, after, why))
    # Where it would mend nothing, what was good is not what made the difference.
    ailing = (dormant,) if dead else now.metrics
    asked = {wish.turn for wish in _wishes(ailing, past)}
    return found if any((one.knob, one.direction) in asked for one in found) else []


def _turned(
    now: HealthReport, knobs: Knobs, past: Past, settings: AutotuneSettings
) -> list[Adjustment]:
    """The most promising turns, of each knob one at most."""
    found: dict[str, Adjustment] = {}
    for wish in _wishes(now.metrics, past):
        knob, direction = wish.turn
        if len(found) == settings.max_changes or 1.0 - wish.doubt < settings.min_success_chance:
            break
        value = getattr(knobs, knob)
        after = stepped(knob, direction, value, settings)
        if knob not in found and after is not None:
            why = _why(wish.metric)
            found[knob] = Adjustment(wish.metric.name, knob, direction, value, after, why)
    return list(found.values())


def _wishes(metrics: Sequence[Metric], past: Past) -> list[_Wish]:
    """What the metrics that are out of range ask for: what helped before, then the most direct."""
    wishes = [
        _Wish(1.0 - past.worth((metric.name, *turn)), place, number, turn, metric)
        for number, metric in enumerate(metrics)
        if metric.in_range is False
        for place, turn in enumerate(SIGNS.get((metric.name, side(metric)), ()))
    ]
    return sorted(wishes, key=lambda wish: wish[:3])


def stepped(knob: str, direction: int, value: float, settings: AutotuneSettings) -> float | None:
    """The value one step further, at most to the rail; None where it would not move that way.

    Args:
        knob: Its name.
        direction: 1 is up, -1 down.
        value: As it stands.
        settings: Steps and rails.
    """
    low, high = settings.rails[knob]
    after = min(max(value + direction * _step(knob, direction, value, settings), low), high)
    after = int(after) if knob == "promotion_threshold" else round(after, _DIGITS)
    return after if (after - value) * direction > 0 else None


def _step(knob: str, direction: int, value: float, settings: AutotuneSettings) -> float:
    if knob == "half_life":
        share = (
            settings.half_life_factor - 1.0
            if direction > 0
            else 1.0 - 1.0 / settings.half_life_factor
        )
        return max(settings.min_half_life_step, value * share)
    steps = {"hebbian_rate": settings.hebbian_step, "reflex": settings.reflex_step}
    return steps.get(knob, 1)


def _why(metric: Metric) -> str:
    low = side(metric) == "low"
    bound = metric.low if low else metric.high
    return f"{metric.name} is {metric.value:g}, {'below' if low else 'above'} {bound:g}"
