"""Decides which knobs to change: a pure function of health reports, knobs and tuning history.

Maps each metric that has left its range to the knob changes that may help.

The knob that acts most directly comes first; docs/autotuner.md gives the reasons.

Tuning history of a namespace: which changes helped, and the last good state.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from crabpath_retrievers.config.autotune import KNOBS, AutotuneSettings, Knobs
from crabpath_retrievers.maintenance.health.report import HealthReport, Metric

Side = Literal["low", "high"]
"""The end at which a metric has left its range."""


class KnobTurn(NamedTuple):
    """A knob and a direction: 1 for up, -1 for down."""

    knob: str
    direction: int


_LONGER, _SHORTER = KnobTurn("half_life", 1), KnobTurn("half_life", -1)
_EASIER, _HARDER = KnobTurn("promotion_threshold", -1), KnobTurn("promotion_threshold", 1)
_STRONGER, _WEAKER = KnobTurn("hebbian_rate", 1), KnobTurn("hebbian_rate", -1)
_EARLIER, _LATER = KnobTurn("reflex", -1), KnobTurn("reflex", 1)

KNOB_TURNS: Mapping[tuple[str, Side], tuple[KnobTurn, ...]] = {
    # Edges are followed when they are strong enough: slow their decay, strengthen learning.
    ("avg_nodes_fired_per_query", "low"): (_LONGER, _STRONGER, _EASIER, _EARLIER),
    ("avg_nodes_fired_per_query", "high"): (_LATER, _WEAKER, _SHORTER, _HARDER),
    # Learning connects documents that are used together.
    ("cross_file_edge_pct", "low"): (_EASIER, _LONGER),
    ("cross_file_edge_pct", "high"): (_HARDER, _SHORTER),
    ("dormant_pct", "low"): (_SHORTER, _WEAKER),
    ("dormant_pct", "high"): (_LONGER, _STRONGER),
    ("reflex_pct", "low"): (_EARLIER, _STRONGER, _LONGER),
    ("reflex_pct", "high"): (_LATER, _WEAKER, _SHORTER),
    # Enter fewer nodes; no knob helps where exactly k documents are returned.
    ("context_compression", "high"): (_LATER, _HARDER),
    ("context_compression", "low"): (_EARLIER, _EASIER),
    ("proto_promotion_rate", "low"): (_EASIER,),
    ("proto_promotion_rate", "high"): (_HARDER,),
    # Parts of a split node are connected again by joint use.
    ("reconvergence_rate", "high"): (_HARDER, _SHORTER, _WEAKER),
    # Chunks missing in the vector index: no knob helps; crabpath doctor reports them.
    ("orphan_nodes", "high"): (),
}
"""Changes to try, by metric and side; sides that a metric cannot reach are left out."""


BRAKE = "brake"
"""Metric name of an adjustment that goes back to the last good state."""

_SAME = 1e-9
Triple = tuple[str, str, int]
"""Metric, knob and direction (1 or -1)."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change of a knob.

    Attributes:
        metric: Metric that it is to improve; ``"brake"`` when going back to the last good state.
        knob: Name of the knob.
        direction: 1 for up, -1 for down.
        before, after: Values of the knob.
        why: The reason in words.
    """

    metric: str
    knob: str
    direction: int
    before: float
    after: float
    why: str

    @property
    def triple(self) -> Triple:
        """Key by which successes are counted."""
        return self.metric, self.knob, self.direction


@dataclass(frozen=True, slots=True)
class GoodState:
    """The last good state of a namespace.

    Attributes:
        knobs: Knobs at that time.
        ill: Number of metrics out of range.
        learned: Number of lessons that the namespace had learned.
    """

    knobs: Knobs
    ill: int
    learned: int


@dataclass(frozen=True, slots=True)
class TuningHistory:
    """Tuning history of a namespace.

    Attributes:
        evidence: Discounted successes and failures by triple.
        pending: Changes of the last run, with the distance of their metric from its range.
        ill: Number of metrics out of range at the last run.
        turn, learned: Turns and lessons of the namespace at the last run; -1 before the first.
        good: The last good state.
        rest: Number of coming runs that change nothing.
    """

    evidence: Mapping[Triple, tuple[float, float]] = field(default_factory=dict)
    pending: tuple[tuple[Triple, float], ...] = ()
    ill: int = 0
    turn: int = -1
    learned: int = -1
    good: GoodState | None = None
    rest: int = 0

    def help_probability(self, triple: Triple) -> float:
        """Return the chance that a change helps: mean of Beta(1 + successes, 1 + failures)."""
        successes, failures = self.evidence.get(triple, (0.0, 0.0))
        return (1.0 + successes) / (2.0 + successes + failures)

    def score_pending(self, report: HealthReport, settings: AutotuneSettings) -> "TuningHistory":
        """Return the history with the changes of the last run scored by a new report.

        A change is a success if its metric is nearer to its range and no more metrics are out of
        range than before. A change without effect counts as half a failure, since many changes
        take effect slowly.
        """
        kept = {
            t: (s * settings.evidence_decay, f * settings.evidence_decay)
            for t, (s, f) in self.evidence.items()
        }
        worse = len(find_out_of_range(report)) > self.ill
        for triple, distance in self.pending:
            metric = report[triple[0]]
            if metric.in_range is None:
                continue
            gained = distance - measure_distance(metric)
            success = float(gained > _SAME and not worse)
            failure = 1.0 - success if worse or gained < -_SAME else (1.0 - success) / 2
            successes, failures = kept.get(triple, (0.0, 0.0))
            kept[triple] = (successes + success, failures + failure)
        return replace(self, evidence=kept, pending=(), rest=max(0, self.rest - 1))

    def after(
        self,
        report: HealthReport,
        knobs: Knobs,
        adjusted: Sequence[Adjustment],
        learned: int,
        settings: AutotuneSettings,
    ) -> "TuningHistory":
        """Return the history after a run.

        Args:
            report: Health report of the run.
            knobs: Knobs before the run.
            adjusted: Changes that the run made.
            learned: Number of lessons that the namespace has learned.
            settings: How many runs to rest after a brake.
        """
        number, good = len(find_out_of_range(report)), self.good
        braked = any(one.metric == BRAKE for one in adjusted)
        dormant = report["dormant_pct"]
        dead = dormant.in_range is False and find_side(dormant) == "high"
        if good is not None and dead and knobs == good.knobs and not self.rest:
            good = None  # the good state did not last
        if not dead and report.judged_count and (good is None or number <= good.ill):
            good = GoodState(knobs, number, learned)
        return replace(
            self,
            pending=tuple(
                (one.triple, measure_distance(report[one.metric])) for one in adjusted if not braked
            ),
            ill=number,
            turn=report.turn,
            learned=learned,
            good=good,
            rest=settings.rest_runs + 1 if braked else self.rest,
        )

    def to_json(self) -> str:
        """Serialise the history for the store."""
        good = self.good and [self.good.knobs.to_dict(), self.good.ill, self.good.learned]
        parts = {
            "evidence": [[*triple, *counts] for triple, counts in self.evidence.items()],
            "pending": [[*triple, distance] for triple, distance in self.pending],
            "state": [self.ill, self.turn, self.learned, self.rest],
            "good": good,
        }
        return json.dumps(parts)

    @classmethod
    def from_json(cls, text: str | None) -> "TuningHistory":
        """The inverse of :meth:`to_json`; an empty history if the text cannot be read."""
        if text is None:
            return cls()
        try:
            data = json.loads(text)
            known, turn, learned, rest = data["state"]
            return cls(
                {(m, k, d): (s, f) for m, k, d, s, f in data["evidence"]},
                tuple(((m, k, d), distance) for m, k, d, distance in data["pending"]),
                known,
                turn,
                learned,
                data["good"] and GoodState(Knobs(**data["good"][0]), *data["good"][1:]),
                rest,
            )
        except (ValueError, TypeError, KeyError):
            return cls()


def find_out_of_range(report: HealthReport) -> list[str]:
    """Return the names of metrics out of range; metrics that are not judged do not count."""
    return [metric.name for metric in report.metrics if metric.in_range is False]


def measure_distance(metric: Metric) -> float:
    """Return the distance of a metric from its range, at least 0."""
    value = metric.value
    return 0.0 if value is None else max(0.0, metric.low - value, value - metric.high)


def find_side(metric: Metric) -> Side:
    """Return the end at which a metric has left its range."""
    return "low" if metric.value is not None and metric.value < metric.low else "high"


def count_lost_metrics(reports: Iterable[HealthReport], now: HealthReport) -> int:
    """Count metrics in range in the best earlier report and out of range now."""
    out = set(find_out_of_range(now))
    known = ({m.name for m in one.metrics if m.in_range} & out for one in reports)
    return max(map(len, known), default=0)


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
