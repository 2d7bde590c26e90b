"""From measured numbers to a report: pure, and safe to write as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from crabpath_retrievers.config import HealthSettings
from crabpath_retrievers.config.health import METRICS
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Tier
from crabpath_retrievers.health.measured import Measured, Tally

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of document 000 §5.1.

    Attributes:
        name: As in the document.
        value: A share in [0, 1], or a count; None where there is nothing to measure.
        low, high: The range in which it is well, both ends included.
        in_range: Whether it is; None where it is not judged.
        sampled: On how many observations it rests.
        note: What was counted, and why it is not judged.
    """

    name: str
    value: float | None
    low: float
    high: float
    in_range: bool | None
    sampled: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """How well a namespace of a memory is.

    Attributes:
        namespace: By name.
        turn: How many turns it had.
        created: When it was measured, in seconds since the epoch.
        metrics: All eight, in the order of the document.
        edges: Edges by tier, ``structure`` (of the text) and ``learned``; estimated beyond the
            size of the sample.
    """

    namespace: str
    turn: int
    created: float
    metrics: tuple[Metric, ...]
    edges: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Metric:
        """A metric by its name.

        Raises:
            InvalidInputError: There is none.
        """
        for metric in self.metrics:
            if metric.name == name:
                return metric
        msg = f"{name!r:.100} is no metric of health: use {', '.join(METRICS)}"
        raise InvalidInputError(msg)

    @property
    def healthy(self) -> int:
        """Metrics that are in range."""
        return sum(metric.in_range is True for metric in self.metrics)

    @property
    def judged(self) -> int:
        """Metrics that are in range or not: there is enough to judge them by."""
        return sum(metric.in_range is not None for metric in self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain, JSON-safe data."""
        return {**asdict(self), "healthy": self.healthy, "judged": self.judged}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "HealthReport":
        """The inverse of :meth:`to_dict`."""
        metrics = tuple(Metric(**metric) for metric in data["metrics"])
        return cls(data["namespace"], data["turn"], data["created"], metrics, data["edges"])


@dataclass(frozen=True, slots=True)
class _Value:
    """A metric before it is judged; ``told`` says why it is not to be."""

    value: float | None
    sampled: int
    note: str = ""
    told: bool = False


def assess(
    measured: Measured, settings: HealthSettings, *, namespace: str, turn: int, created: float
) -> HealthReport:
    """Judge what was measured.

    Args:
        measured: The numbers.
        settings: Ranges, and how many observations are enough.
        namespace: By name.
        turn: How many turns it had.
        created: When, in seconds since the epoch.
    """
    metrics = tuple(_judged(name, _METRICS[name](measured), settings) for name in METRICS)
    edges = {"structure": _tiers(measured.structure), "learned": _tiers(measured.learned)}
    return HealthReport(namespace, turn, created, metrics, edges)


def _judged(name: str, found: _Value, settings: HealthSettings) -> Metric:
    low, high = settings.ranges[name]
    if found.value is None or found.told:
        value = None if found.value is None else round(found.value, _DIGITS)
        return Metric(name, value, low, high, None, found.sampled, found.note)
    few = name not in _COUNTS and found.sampled < settings.min_observations
    note = (
        f"{found.note}; fewer than {settings.min_observations}, not judged" if few else found.note
    )
    within = None if few else low <= found.value <= high
    return Metric(name, round(found.value, _DIGITS), low, high, within, found.sampled, note)


def _fired(measured: Measured) -> _Value:
    number = len(measured.turns)
    if not number:
        return _Value(None, 0, "no turn yet")
    mean = sum(turn.fired for turn in measured.turns) / number
    return _Value(mean, number, f"entered by a pointer, in the last {number} turns")


def _cross_file(measured: Measured) -> _Value:
    both = (measured.structure, measured.learned)
    sampled = sum(of.within for of in both)
    if measured.documents == 1:
        return _Value(None, sampled, "there is one document only")
    return _ratio(both, "crossing", "within", "edges between document chunks")


def _dormant(measured: Measured) -> _Value:
    both = (measured.structure, measured.learned)
    return _ratio(both, "faded", "fading", "edges that can fade")


def _reflex(measured: Measured) -> _Value:
    both = (measured.structure, measured.learned)
    total, sampled = _estimate(both, "edges"), sum(of.edges for of in both)
    if not total:
        return _Value(None, 0, "no edges")
    reflex = sum(of.tiers.get(Tier.REFLEX, 0) / of.share for of in both)
    return _Value(reflex / total, sampled, f"of {sampled} edges")


def _compression(measured: Measured) -> _Value:
    number = len(measured.turns)
    if not number or not measured.tokens:
        return _Value(None, number, "no turn yet" if measured.tokens else "no text yet")
    mean = sum(turn.tokens for turn in measured.turns) / number
    answer = sum(turn.returned for turn in measured.turns) / number
    note = f"words returned of {measured.tokens}, in the last {number} turns"
    if measured.nodes < _ANSWERS * answer:
        note += "; the corpus is smaller than five answers, not judged"
        return _Value(mean / measured.tokens, number, note, told=True)
    return _Value(mean / measured.tokens, number, note)


def _promotion(measured: Measured) -> _Value:
    if not measured.pairs:
        return _Value(None, 0, "nothing was used together yet")
    share = measured.promoted / measured.pairs
    return _Value(share, measured.pairs, f"of {measured.pairs} pairs used together")


def _reconvergence(measured: Measured) -> _Value:
    if not measured.splits:
        return _Value(0.0, 0, "nothing was split")
    share = measured.rejoined / measured.splits
    return _Value(share, measured.splits, f"of {measured.splits} nodes that were split")


def _orphans(measured: Measured) -> _Value:
    if not measured.nodes or not measured.sampled:
        return _Value(0.0, 0, "no documents")
    alone = f"{measured.isolated} of {measured.sampled} are reached by search alone"
    if measured.missing is None:
        return _Value(None, measured.sampled, f"the vector index was not asked; {alone}")
    scale = max(1.0, measured.nodes / measured.sampled)
    note = f"{measured.missing} of {measured.sampled} are not in the vector index; {alone}"
    return _Value(float(round(measured.missing * scale)), measured.sampled, note)


_ANSWERS = 5  # a corpus of fewer answers than these cannot be compressed to a fifth
_COUNTS = frozenset({"orphan_nodes", "reconvergence_rate"})  # one is one too many
_METRICS: Mapping[str, Callable[[Measured], _Value]] = {
    "avg_nodes_fired_per_query": _fired,
    "cross_file_edge_pct": _cross_file,
    "dormant_pct": _dormant,
    "reflex_pct": _reflex,
    "context_compression": _compression,
    "proto_promotion_rate": _promotion,
    "reconvergence_rate": _reconvergence,
    "orphan_nodes": _orphans,
}


def _ratio(both: tuple[Tally, ...], part: str, whole: str, what: str) -> _Value:
    total, sampled = _estimate(both, whole), sum(getattr(of, whole) for of in both)
    if not total:
        return _Value(None, 0, f"no {what}")
    return _Value(_estimate(both, part) / total, sampled, f"of {sampled} {what}")


def _estimate(both: tuple[Tally, ...], name: str) -> float:
    """A count in all edges, from those that were looked at."""
    return sum(float(getattr(of, name)) / of.share for of in both)


def _tiers(of: Tally) -> dict[str, int]:
    return {tier.value: round(of.tiers.get(tier, 0) / of.share) for tier in Tier}
