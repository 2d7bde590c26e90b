"""What is known of turning the knobs of one namespace: what helped, and what was good."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crabpath_retrievers.autotune.signs import Side
from crabpath_retrievers.config.autotune import AutotuneSettings, Knobs
from crabpath_retrievers.health.report import HealthReport, Metric

BRAKE = "brake"
"""Stands for the metric where knobs went back to what was good."""

_SAME = 1e-9
Triple = tuple[str, str, int]
"""Metric, knob and direction."""


@dataclass(frozen=True, slots=True)
class Adjustment:
    """A knob that is turned.

    Attributes:
        metric: For which; ``"brake"`` where the last good state is gone back to.
        direction: 1 is up, -1 down.
        before, after: Its values.
        why: In words.
    """

    metric: str
    knob: str
    direction: int
    before: float
    after: float
    why: str

    @property
    def triple(self) -> Triple:
        """By what its successes are counted."""
        return self.metric, self.knob, self.direction


@dataclass(frozen=True, slots=True)
class Good:
    """The last known good state.

    Attributes:
        knobs: As they were.
        ill: Metrics out of range then.
        learned: How often the namespace had learned.
    """

    knobs: Knobs
    ill: int
    learned: int


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier looks have left.

    Attributes:
        evidence: Successes and failures by triple; they fade.
        pending: What the last look turned, with how far its metric was out of range.
        ill: Metrics out of range at the last look.
        turn, learned: Turns and lessons of the namespace then; -1 before the first look.
        good: The last known good state.
        rest: Looks at which nothing is to be turned yet.
    """

    evidence: Mapping[Triple, tuple[float, float]] = field(default_factory=dict)
    pending: tuple[tuple[Triple, float], ...] = ()
    ill: int = 0
    turn: int = -1
    learned: int = -1
    good: Good | None = None
    rest: int = 0

    def worth(self, triple: Triple) -> float:
        """Chance that it helps: the mean of its Beta posterior, one half before it was tried."""
        successes, failures = self.evidence.get(triple, (0.0, 0.0))
        return (1.0 + successes) / (2.0 + successes + failures)

    def judged(self, report: HealthReport, settings: AutotuneSettings) -> "Past":
        """After seeing what became of what was turned at the last look.

        A success has its metric nearer to its range, and no more metrics out of theirs than
        before; what changed nothing counts half a failure, because much takes effect slowly.
        """
        kept = {
            t: (s * settings.evidence_decay, f * settings.evidence_decay)
            for t, (s, f) in self.evidence.items()
        }
        worse = len(ill(report)) > self.ill
        for triple, distance in self.pending:
            metric = report[triple[0]]
            if metric.in_range is None:
                continue
            gained = distance - outside(metric)
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
    ) -> "Past":
        """What the next look is to know.

        Args:
            report: What this look has found.
            knobs: As they were at it.
            adjusted: What it turned.
            learned: How often the namespace has learned.
            settings: How long to rest after a brake.
        """
        number, good = len(ill(report)), self.good
        braked = any(one.metric == BRAKE for one in adjusted)
        dormant = report["dormant_pct"]
        dead = dormant.in_range is False and side(dormant) == "high"
        if good is not None and dead and knobs == good.knobs and not self.rest:
            good = None  # it did not last
        if not dead and report.judged and (good is None or number <= good.ill):
            good = Good(knobs, number, learned)
        return replace(
            self,
            pending=tuple(
                (one.triple, outside(report[one.metric])) for one in adjusted if not braked
            ),
            ill=number,
            turn=report.turn,
            learned=learned,
            good=good,
            rest=settings.rest_runs + 1 if braked else self.rest,
        )

    def to_json(self) -> str:
        """As it is stored."""
        good = self.good and [self.good.knobs.to_dict(), self.good.ill, self.good.learned]
        parts = {
            "evidence": [[*triple, *counts] for triple, counts in self.evidence.items()],
            "pending": [[*triple, distance] for triple, distance in self.pending],
            "state": [self.ill, self.turn, self.learned, self.rest],
            "good": good,
        }
        return json.dumps(parts)

    @classmethod
    def from_json(cls, text: str | None) -> "Past":
        """The inverse of :meth:`to_json`; what cannot be read is not known."""
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
                data["good"] and Good(Knobs(**data["good"][0]), *data["good"][1:]),
                rest,
            )
        except (ValueError, TypeError, KeyError):
            return cls()


def ill(report: HealthReport) -> list[str]:
    """Metrics that are out of range; those that are not judged are not."""
    return [metric.name for metric in report.metrics if metric.in_range is False]


def outside(metric: Metric) -> float:
    """How far a metric is out of its range, at least 0."""
    value = metric.value
    return 0.0 if value is None else max(0.0, metric.low - value, value - metric.high)


def side(metric: Metric) -> Side:
    """At which end it has left its range."""
    return "low" if metric.value is not None and metric.value < metric.low else "high"


def fallen(reports: Iterable[HealthReport], now: HealthReport) -> int:
    """How many metrics were in range in the best of some reports, and are out of range now."""
    out = set(ill(now))
    known = ({m.name for m in one.metrics if m.in_range} & out for one in reports)
    return max(map(len, known), default=0)
