"""Tuning history of a namespace: which changes helped, and the last good state."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crabpath_retrievers.autotune.signs import Side
from crabpath_retrievers.config.autotune import AutotuneSettings, Knobs
from crabpath_retrievers.health.report import HealthReport, Metric

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
