"""The autotuner: adjusts four knobs per namespace, within limits, by health metrics.

At most a few steps at a time, within guard rails; changes that helped before come first. A memory
that got much worse goes back to its last good knobs (the brake). docs/how-to/autotune.md gives
reasons.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.operation import KNOBS, AutotuneSettings, Knobs
from crabpath_retrievers.config.settings import dump_knobs, load_knobs
from crabpath_retrievers.errors import CrabPathError
from crabpath_retrievers.parts.operation.maintenance.changes import Tuning, set_knobs
from crabpath_retrievers.parts.operation.maintenance.health import (
    HealthReport,
    Metric,
    Side,
    load_past_reports,
    measure_health,
    project_dormant_share,
)
from crabpath_retrievers.storage import Store

KnobTurn = tuple[str, int]
"""A knob and a direction: 1 for up, -1 for down."""

_LONGER, _SHORTER = ("half_life", 1), ("half_life", -1)
_EASIER, _HARDER = ("promotion_threshold", -1), ("promotion_threshold", 1)
_STRONGER, _WEAKER = ("hebbian_rate", 1), ("hebbian_rate", -1)
_EARLIER, _LATER = ("reflex", -1), ("reflex", 1)

KNOB_TURNS: Mapping[tuple[str, Side | None], tuple[KnobTurn, ...]] = {
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
    # Parts of a split document are connected again by joint use.
    ("reconvergence_rate", "high"): (_HARDER, _SHORTER, _WEAKER),
}
"""Changes to try, the most direct first; no knob helps against chunks missing in the index."""

BRAKE = "brake"
"""Metric name of an adjustment that goes back to the last good state."""

_SAME = 1e-9
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A change of a knob.

    ``metric`` is the one to improve; ``"brake"`` when going back to the last good state.
    """

    metric: str
    knob: str
    direction: int
    before: float
    after: float
    why: str

    @property
    def attempt(self) -> str:
        """Key by which successes are counted: metric, knob and direction."""
        return name_attempt(self.metric, (self.knob, self.direction))


def name_attempt(metric: str, turn: KnobTurn) -> str:
    """Return the name of an attempt to improve a metric by a turn: ``dormant_pct half_life +1``."""
    return f"{metric} {turn[0]} {turn[1]:+d}"


@dataclass(frozen=True, slots=True)
class TuningHistory:
    """Tuning history of a namespace.

    Attributes:
        evidence: Discounted successes and failures by attempt.
        pending: Changes of the last run, with the distance of their metric from its range.
        ill: Number of metrics out of range at the last run.
        turn, learned: Turns and lessons of the namespace at the last run; -1 before the first.
        good: Knobs of the last good state, and its number of metrics out of range.
        rest: Number of coming runs that change nothing.
    """

    evidence: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    pending: tuple[tuple[str, float], ...] = ()
    ill: int = 0
    turn: int = -1
    learned: int = -1
    good: tuple[Knobs, int] | None = None
    rest: int = 0

    def help_probability(self, attempt: str) -> float:
        """Return the chance that a change helps: mean of Beta(1 + successes, 1 + failures)."""
        successes, failures = self.evidence.get(attempt, (0.0, 0.0))
        return (1.0 + successes) / (2.0 + successes + failures)

    def score_pending(self, report: HealthReport, settings: AutotuneSettings) -> "TuningHistory":
        """Return the history with the changes of the last run scored by a new report.

        A change succeeds if it brings its metric nearer to the range, and no more metrics are out
        of range than before. A change without effect counts as half a failure, since many take
        effect slowly.
        """
        kept = {
            attempt: (s * settings.evidence_decay, f * settings.evidence_decay)
            for attempt, (s, f) in self.evidence.items()
        }
        worse = len(report.out_of_range) > self.ill
        for attempt, distance in self.pending:
            metric = report[attempt.split()[0]]
            if metric.in_range is None:
                continue
            gained = distance - metric.distance
            success = float(gained > _SAME and not worse)
            failure = 1.0 - success if worse or gained < -_SAME else (1.0 - success) / 2
            successes, failures = kept.get(attempt, (0.0, 0.0))
            kept[attempt] = (successes + success, failures + failure)
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
            report: The report of the run.
            knobs: Knobs after it.
            adjusted: Changes that it made.
            learned: Number of lessons before it.
            settings: For how many runs it rests after going back.
        """
        number, good = len(report.out_of_range), self.good
        braked = any(one.metric == BRAKE for one in adjusted)
        dead = report["dormant_pct"].side == "high"
        if good is not None and dead and knobs == good[0] and not self.rest:
            good = None  # the good state did not last
        if not dead and report.judged_count and (good is None or number <= good[1]):
            good = (knobs, number)
        pending = tuple(
            (one.attempt, report[one.metric].distance) for one in adjusted if not braked
        )
        rest = settings.rest_runs + 1 if braked else self.rest
        return TuningHistory(
            self.evidence, pending, number, report.turn, learned, good=good, rest=rest
        )

    def to_json(self) -> str:
        """Serialise the history for the store."""
        return _ADAPTER.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | None) -> "TuningHistory":
        """Read the history from text of :meth:`to_json`; an empty one if it cannot be read."""
        try:
            return _ADAPTER.validate_json(text or "{}")
        except ValueError:
            return cls()


_ADAPTER = TypeAdapter(TuningHistory)


def decide_adjustments(
    reports: Sequence[HealthReport], knobs: Knobs, past: TuningHistory, settings: AutotuneSettings
) -> list[Adjustment]:
    """Decide which knobs to change, at most ``settings.max_changes``; none if all metrics are well.

    ``reports`` are oldest first, the current one last; the changes of the last run are scored in
    ``past``.
    """
    if not reports or past.rest:
        return []
    now, before = reports[-1], reports[-1 - settings.window_reports : -1]
    if rollback := _decide_rollback(now, before, knobs, past, settings):
        return rollback
    found: dict[str, Adjustment] = {}
    for chance, (knob, direction), metric in _rank_turns(now.metrics, past):
        if len(found) == settings.max_changes or chance < settings.min_success_chance:
            break
        value = getattr(knobs, knob)
        after = step_knob(knob, direction, value, settings)
        if knob not in found and after is not None:
            why = _explain(metric)
            found[knob] = Adjustment(metric.name, knob, direction, value, after, why)
    return list(found.values())


def _decide_rollback(
    now: HealthReport,
    before: Sequence[HealthReport],
    knobs: Knobs,
    past: TuningHistory,
    settings: AutotuneSettings,
) -> list[Adjustment]:
    """Decide to go back to the last good knobs, if health is much worse and a metric asks for it.

    ``now`` is the current report, ``before`` are the last ones. Empty otherwise.
    """
    dormant, out = now["dormant_pct"], now.out_of_range
    lost = max(
        (len({m.name for m in one.metrics if m.in_range} & out) for one in before), default=0
    )
    dead = dormant.in_range is False and (dormant.value or 0.0) >= settings.brake_dormant_share
    if past.good is None or not (dead or lost >= settings.brake_metrics):
        return []
    why = _explain(dormant) if dead else f"{lost} metrics have left their range"
    found = []
    for name in KNOBS:
        low, high = settings.rails[name]
        value, after = getattr(knobs, name), min(max(getattr(past.good[0], name), low), high)
        if after != value:
            direction = 1 if after > value else -1
            found.append(Adjustment(BRAKE, name, direction, value, after, why))
    # If no metric asks for such a change, the old knobs did not make the difference.
    asked = {turn for _, turn, _ in _rank_turns((dormant,) if dead else now.metrics, past)}
    return found if any((one.knob, one.direction) in asked for one in found) else []


def _rank_turns(
    metrics: Sequence[Metric], past: TuningHistory
) -> list[tuple[float, KnobTurn, Metric]]:
    """List ``(chance, change of a knob, metric)`` for metrics out of range, best chance first.

    ``past`` has the chance that a change helps.
    """
    turns = [
        (past.help_probability(name_attempt(metric.name, turn)), place, turn, metric)
        for metric in metrics
        for place, turn in enumerate(KNOB_TURNS.get((metric.name, metric.side), ()))
    ]
    turns.sort(key=lambda item: (-item[0], item[1]))
    return [(chance, turn, metric) for chance, _, turn, metric in turns]


def step_knob(knob: str, direction: int, value: float, settings: AutotuneSettings) -> float | None:
    """Return the value of a knob after one step, within its rails; None if it cannot move.

    ``direction`` is 1 or -1, ``value`` the present one.
    """
    factor = settings.half_life_factor
    share = factor - 1.0 if direction > 0 else 1.0 - 1.0 / factor
    steps = {
        "half_life": max(settings.min_half_life_step, value * share),
        "promotion_threshold": 1,
        "hebbian_rate": settings.hebbian_step,
        "reflex": settings.reflex_step,
    }
    low, high = settings.rails[knob]
    after = min(max(value + direction * steps[knob], low), high)
    after = int(after) if knob == "promotion_threshold" else round(after, _DECIMALS)
    return after if (after - value) * direction > 0 else None


def _explain(metric: Metric) -> str:
    bound = metric.low if metric.side == "low" else metric.high
    where = "below" if metric.side == "low" else "above"
    return f"{metric.name} is {metric.value:g}, {where} {bound:g}"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TuneReport:
    """Result of one run of the autotuner on a namespace.

    Attributes:
        namespace: Name of the namespace.
        run: Id for undoing the run as a maintenance run; empty if no knob was changed.
        dry_run: Whether nothing was changed.
        adjustments: Changes of knobs, made or planned.
        knobs: Values of the knobs afterwards.
        note: Why the run was skipped; empty if it was not.
    """

    namespace: str
    run: str
    dry_run: bool
    adjustments: tuple[Adjustment, ...]
    knobs: Knobs
    note: str = ""

    @property
    def brake_applied(self) -> bool:
        """Whether the knobs went back to the last good state."""
        return any(one.metric == BRAKE for one in self.adjustments)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        return {**asdict(self), "knobs": self.knobs.to_dict(), "braked": self.brake_applied}


@dataclass(frozen=True, slots=True)
class Autotuner:
    """Adjusts the knobs of the namespaces of one store."""

    store: Store
    settings: Settings

    def knobs(self, namespace: str) -> Knobs:
        """Return the current knobs of a namespace."""
        return load_knobs(self.store.learned.get_tuning(namespace)[0], self.settings)

    def set_knobs(self, namespace: str, values: Mapping[str, Any]) -> str:
        """Set knobs by hand, and return the id for undoing the change.

        ``values`` are by name of the knob; other knobs do not change.
        """
        known = self.store.learned.get_tuning(namespace)
        checked = self.settings.autotune.validate_knobs(values)
        knobs = load_knobs(known[0], self.settings).replace(**checked)
        return self._write(namespace, (dump_knobs(knobs, self.settings), known[1]), known)

    def reset(self, namespace: str) -> str:
        """Reset the knobs to the settings, and delete the tuning history."""
        return self._write(namespace, (None, None), self.store.learned.get_tuning(namespace))

    def _write(self, namespace: str, after: Tuning, before: Tuning) -> str:
        run = uuid.uuid4().hex
        if after != before:
            self.store.write(set_knobs, run, namespace, after, before)
        return run

    def run(
        self,
        namespace: str,
        *,
        asked: bool = True,
        dry_run: bool = False,
        record: bool = True,
        run: str = "",
    ) -> TuneReport:
        """Measure the health of a namespace, and adjust its knobs if a metric is out of range.

        Args:
            namespace: The namespace.
            asked: Whether a user asked for the run; if not, it waits for ``every`` lessons.
            dry_run: Only report what would change.
            record: Whether the report is stored.
            run: Id of the maintenance run; empty makes one.
        """
        self.settings.autotune.validate_knobs(self.settings.knobs.to_dict())
        known = self.store.learned.get_tuning(namespace)
        knobs, past = load_knobs(known[0], self.settings), TuningHistory.from_json(known[1])
        if note := self._find_skip_reason(namespace, past, asked=asked):
            return TuneReport(namespace, "", dry_run, (), knobs, note=note)
        store, rules = self.store, self.settings.autotune
        before = load_past_reports(store, namespace, rules.window_reports)
        report = measure_health(store, namespace, self.settings, record=record and not dry_run)
        ahead = project_dormant_share(
            store, namespace, self.settings, report, rules.every_feedbacks
        )
        past = past.score_pending(report, rules)
        adjusted = tuple(decide_adjustments([*before, ahead], knobs, past, rules))
        turned: dict[str, Any] = {one.knob: one.after for one in adjusted}
        after = knobs.replace(**turned)
        if dry_run:
            return TuneReport(namespace, "", dry_run, adjusted, after)
        lessons = store.learned.get_state(namespace).version
        left = past.after(report, knobs, adjusted, lessons, rules).to_json()
        run = (run or uuid.uuid4().hex) if adjusted else ""
        own, why = dump_knobs(after, self.settings), tuple(asdict(one) for one in adjusted)
        store.write(set_knobs, run, namespace, (own, left), known, why)
        return TuneReport(namespace, run, dry_run, adjusted, after)

    def run_if_due(self, namespace: str, lessons: int) -> None:
        """Run if enabled, and if ``lessons`` is a multiple of ``autotune.every_feedbacks``.

        Errors are logged, not raised: what was learned stays, and the next run makes up for it.
        """
        rules = self.settings.autotune
        if not rules.enabled or lessons % rules.every_feedbacks:
            return
        try:
            self.run(namespace, asked=False)
        except CrabPathError as error:
            _log.warning("the knobs of %r were not tuned: %s", namespace, error)

    def _find_skip_reason(self, namespace: str, past: TuningHistory, *, asked: bool) -> str:
        """Return the reason to skip a run; empty if it is not to be skipped.

        ``past`` is the history of tuning; ``asked`` says whether a user asked for the run.
        """
        self.store.flush()
        learned = self.store.learned.get_state(namespace)
        turn = self.store.walk.get_clock(namespace).turn
        if learned.frozen:
            return "the namespace is frozen"
        if (learned.version, turn) in {(0, 0), (past.learned, past.turn)}:
            return "there were no queries and no feedback since the last run"
        every = self.settings.autotune.every_feedbacks
        if not asked and learned.version - max(0, past.learned) < every:
            return f"fewer than {every} lessons since the last run"
        return ""


def tune_after_lesson(settings: Settings) -> Callable[[Store, str, int], None]:
    """Make the hook that runs the autotuner after a lesson, when it is due."""
    return lambda store, namespace, lessons: Autotuner(store, settings).run_if_due(
        namespace, lessons
    )
