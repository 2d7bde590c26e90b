"""Report of a trial: both arms, their differences with bootstrap intervals, and a verdict."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Literal

import numpy as np

from crabpath_lab.ab.metrics import (
    UNMEASURED,
    ArmMetrics,
    Characters,
    TrialTurn,
    compute_arm_metrics,
    count_characters,
    group_by_session,
    load_turns_by_arm,
    mean,
)
from crabpath_lab.ab.settings import TrialSettings
from crabpath_lab.ab.state import TrialQueries, TrialState, has_failed
from crabpath_retrievers.config import RankSettings
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.storage import GraphStore

Pairing = Literal["session", "user", "none"]
Values = Mapping[str, float]
_BATCH_NUMBERS = 4_000_000  # numbers in one batch of resamples


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of both arms, as means over units: sessions, or users if users are paired.

    Attributes:
        metric: Name of the metric.
        better: Whether ``lower`` or ``higher`` values are better; None for neither.
        paired: What is paired: sessions in both arms, users in both arms, or nothing.
        control_units, treatment_units: Number of units.
        control, treatment: Means over the units; None without units.
        difference: Treatment − control.
        low, high: Confidence interval of the difference; None below two units in an arm.
        enough: Whether there are enough units to trust the interval.
    """

    metric: str
    better: Literal["lower", "higher"] | None
    paired: Pairing
    control_units: int
    treatment_units: int
    control: float | None
    treatment: float | None
    difference: float | None
    low: float | None
    high: float | None
    enough: bool

    @property
    def proven(self) -> Literal["better", "worse"] | None:
        """Whether the treatment is proven better or worse; None if the interval contains 0."""
        if not self.enough or self.better is None or self.low is None or self.high is None:
            return None
        if self.low <= 0 <= self.high:
            return None
        return "better" if (self.high < 0) == (self.better == "lower") else "worse"


def compare_arms(
    control: Sequence[TrialTurn],
    treatment: Sequence[TrialTurn],
    characters: Characters,
    settings: TrialSettings,
) -> tuple[Comparison, ...]:
    """Compare correction rate, success rate, context length and latency of both arms."""
    measures: dict[str, tuple[Literal["lower", "higher"] | None, _Measure]] = {
        "correction_rate": ("lower", lambda turn: 100.0 * turn.corrected),
        "success_rate": ("higher", _measure_success),
        "context_characters": (None, lambda turn: float(count_characters(turn, characters))),
        "latency_ms": ("lower", lambda turn: turn.latency),
    }
    arms = (control, treatment)
    users = [{turn.session: turn.user for turn in turns} for turns in arms]
    compared = []
    for metric, (better, of) in measures.items():
        sessions = [_average_by_session(turns, of) for turns in arms]
        paired, before, after = pair_units(sessions, users, settings.min_sessions)
        low, high = estimate_interval(before, after, settings, paired=paired != "none")
        a, b = mean(before), mean(after)
        comparison = Comparison(
            metric=metric,
            better=better,
            paired=paired,
            control_units=len(before),
            treatment_units=len(after),
            control=a,
            treatment=b,
            difference=None if a is None or b is None else b - a,
            low=low,
            high=high,
            enough=min(len(before), len(after)) >= settings.min_sessions,
        )
        compared.append(comparison)
    return tuple(compared)


_Measure = Callable[[TrialTurn], float | None]


def _measure_success(turn: TrialTurn) -> float | None:
    return None if turn.outcome is None else float(turn.outcome > 0)


def _average_by_session(turns: Iterable[TrialTurn], of: _Measure) -> dict[str, float]:
    """Average a measure by session; sessions without values are left out."""
    values = {
        session: [value for turn in own if (value := of(turn)) is not None]
        for session, own in group_by_session(turns).items()
    }
    return {session: fmean(own) for session, own in values.items() if own}


def pair_units(
    sessions: Sequence[Values], users: Sequence[Mapping[str, str]], least: int
) -> tuple[Pairing, list[float], list[float]]:
    """Choose the units to resample: pairs, if there are enough and they cover half the sessions.

    Args:
        sessions: Values by session, of the control and of the treatment.
        users: Users by session, of each arm.
        least: Least number of pairs.

    Returns:
        What is paired, and one value per unit of the control and of the treatment.
    """
    control, treatment = sessions
    both = sorted(control.keys() & treatment.keys())
    if len(both) >= least and 2 * len(both) >= max(len(control), len(treatment)):
        return "session", [control[s] for s in both], [treatment[s] for s in both]
    mine, theirs = (_group_by_user(v, u) for v, u in zip(sessions, users, strict=True))
    shared = sorted(mine.keys() & theirs.keys())
    within = all(
        2 * sum(len(of[user]) for user in shared) >= sum(map(len, of.values()))
        for of in (mine, theirs)
    )
    if len(shared) >= least and within:
        return "user", [fmean(mine[u]) for u in shared], [fmean(theirs[u]) for u in shared]
    return "none", list(control.values()), list(treatment.values())


def _group_by_user(values: Values, users: Mapping[str, str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for session, value in values.items():
        found[users[session]].append(value)
    return found


def estimate_interval(
    control: Sequence[float], treatment: Sequence[float], settings: TrialSettings, *, paired: bool
) -> tuple[float | None, float | None]:
    """Compute the percentile bootstrap interval (Efron & Tibshirani 1993) of a difference of means.

    Args:
        control: One value per unit.
        treatment: One value per unit; if ``paired``, of the same units in the same order.
        settings: Confidence, number of resamples, seed.
        paired: Whether pairs are resampled, or each arm separately.

    Returns:
        Low and high end of mean(treatment) − mean(control); None below two values in an arm.
    """
    require_extra("sync", "judging a trial")
    from scipy.stats import bootstrap  # slow to import, and only reports need it

    if min(len(control), len(treatment)) < 2:  # noqa: PLR2004
        return None, None
    a, b = np.asarray(control, dtype=np.float64), np.asarray(treatment, dtype=np.float64)
    found = bootstrap(
        (b - a,) if paired else (b, a),
        np.mean if paired else _compute_difference,
        vectorized=True,
        method="percentile",
        confidence_level=settings.confidence,
        n_resamples=settings.resamples,
        batch=max(1, _BATCH_NUMBERS // max(a.size, b.size)),
        rng=np.random.default_rng(settings.seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def _compute_difference(b: Any, a: Any, axis: int = -1) -> Any:
    return np.mean(b, axis=axis) - np.mean(a, axis=axis)


TrialVerdict = Literal["promote", "continue", "roll back", "too little data"]

DECIDING_METRICS = ("correction_rate", "success_rate")
"""Metrics that decide whether a treatment is promoted."""


def decide_verdict(
    state: TrialState, turns: tuple[int, int], comparisons: Sequence[Comparison]
) -> tuple[TrialVerdict, str]:
    """Return the verdict on a trial, and the reason."""
    settings = state.settings
    if state.status != "running":
        ended: TrialVerdict = "promote" if state.status == "promoted" else "roll back"
        return ended, f"the trial has ended: {state.reason}"
    if has_failed(state.checkpoints, settings.fail_checkpoints):
        return "roll back", format_fail_reason(state)
    if min(turns) < settings.directional_turns:
        need = f"{settings.directional_turns} turns of each arm"
        return "too little data", f"{need} are needed, there are {turns[0]} and {turns[1]}"
    deciding = [one for one in comparisons if one.metric in DECIDING_METRICS]
    return _decide_by_comparison(settings, min(turns), deciding)


def _decide_by_comparison(
    settings: TrialSettings, turns: int, deciding: Sequence[Comparison]
) -> tuple[TrialVerdict, str]:
    if worse := " and ".join(one.metric for one in deciding if one.proven == "worse"):
        return "roll back", f"the treatment is worse in {worse}"
    if better := " and ".join(one.metric for one in deciding if one.proven == "better"):
        if turns >= settings.decisive_turns:
            return "promote", f"the treatment is better in {better}, worse in neither"
        return "continue", f"better in {better}; {settings.decisive_turns} turns of each arm decide"
    if not any(one.enough for one in deciding):
        need = f"{settings.min_sessions} sessions or users of each arm"
        return "too little data", f"{need} are needed"
    return "continue", "no difference is proven"


def format_fail_reason(state: TrialState) -> str:
    """Format the fail rule of a trial as the reason for its end."""
    more = round(100 * (state.settings.fail_ratio - 1), 6)
    row = state.settings.fail_checkpoints
    return f"the treatment was corrected over {more:g} % more often at {row} checkpoints in a row"


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Results of a trial so far.

    Attributes:
        state: State of the trial.
        control, treatment: Metrics of each arm.
        comparisons: Differences between the arms, with intervals.
        verdict: What to do.
        reason: Why.
        not_known: Metrics that a memory cannot measure, and why.
    """

    state: TrialState
    control: ArmMetrics
    treatment: ArmMetrics
    comparisons: tuple[Comparison, ...]
    verdict: TrialVerdict
    reason: str
    not_known: Mapping[str, str] = field(default_factory=lambda: dict(UNMEASURED))

    def __getitem__(self, metric: str) -> Comparison:
        """Return the comparison of a metric by name."""
        return next(one for one in self.comparisons if one.metric == metric)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        plain = asdict(self)
        return {**plain, "state": {**plain["state"], "settings": self.state.settings.to_dict()}}


def build_report(store: GraphStore, state: TrialState, *, until: float) -> TrialReport:
    """Compare both arms by the turns and the feedback in the store."""
    arms = load_turns_by_arm(store, state, since=state.started, until=until)
    returned = {node for turns in arms.values() for turn in turns for node in turn.returned}
    characters = TrialQueries(store).characters(returned)
    per_token = RankSettings().characters_per_token
    metrics = {
        arm: compute_arm_metrics(
            turns,
            characters,
            TrialQueries(store).get_weight_changes(
                {turn.namespace for turn in turns}, since=state.started
            ),
            per_token,
        )
        for arm, turns in arms.items()
    }
    control, treatment = metrics["control"], metrics["treatment"]
    comparisons = compare_arms(arms["control"], arms["treatment"], characters, state.settings)
    verdict, reason = decide_verdict(state, (control.turns, treatment.turns), comparisons)
    return TrialReport(state, control, treatment, comparisons, verdict, reason)
