"""Computes a health report from measurements.

Measurements of a namespace, as read from the store.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from crabpath_retrievers.config import HealthSettings, TierSettings
from crabpath_retrievers.config.operation import METRICS
from crabpath_retrievers.core.records import Tier
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.operation.maintenance.health.queries import EdgeGroup, TurnFacts


@dataclass(frozen=True, slots=True)
class EdgeTally:
    """Counts of a sample of edges.

    Attributes:
        tiers: Edges by tier.
        fading: Edges that decay can take below the habitual threshold.
        faded: Dormant edges among ``fading``.
        within: Edges between two document chunks.
        crossing: Edges among ``within`` that lead from one document to another.
        share: Sampled share of all such edges, in (0, 1].
    """

    tiers: Mapping[Tier, int] = field(default_factory=dict)
    fading: int = 0
    faded: int = 0
    within: int = 0
    crossing: int = 0
    share: float = 1.0

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        return sum(self.tiers.values())


@dataclass(frozen=True, slots=True)
class HealthMeasurements:
    """Measurements of one namespace.

    Attributes:
        turns: The latest turns.
        nodes, tokens: Number of document chunks, and of words in their titles and texts.
        sampled: Number of sampled chunks.
        documents: Number of documents with sampled chunks.
        isolated: Sampled chunks without any edge.
        missing: Sampled chunks that the vector index lacks; None if the index was not asked.
        structure: Text edges of the sampled chunks that have no learned weight.
        learned: Edges whose weight the namespace has learned.
        pairs: Pairs of chunks counted as used together.
        promoted: Pairs that have become an edge.
        splits: Nodes that were split.
        rejoined: Split nodes with only one part left, or with two parts used together again.
    """

    turns: Sequence[TurnFacts] = ()
    nodes: int = 0
    tokens: int = 0
    sampled: int = 0
    documents: int = 0
    isolated: int = 0
    missing: int | None = None
    structure: EdgeTally = field(default_factory=EdgeTally)
    learned: EdgeTally = field(default_factory=EdgeTally)
    pairs: int = 0
    promoted: int = 0
    splits: int = 0
    rejoined: int = 0


def count_edges(
    rows: Iterable[EdgeGroup], exponent: float, tiers: TierSettings, share: float = 1.0
) -> EdgeTally:
    """Count edges by their effective weights in a namespace.

    Args:
        rows: The edges.
        exponent: Accumulated decay exponent of the namespace.
        tiers: Thresholds between the tiers.
        share: Sampled share of all such edges, in (0, 1].
    """
    by_tier = dict.fromkeys(Tier, 0)
    fading = faded = within = crossing = 0
    for row in rows:
        tier = tiers.tier_of(row.stored.decay_to(exponent))
        by_tier[tier] += row.number
        if row.stored.floor < tiers.habitual:
            fading += row.number
            faded += row.number * (tier is Tier.DORMANT)
        if row.crossing is not None:
            within += row.number
            crossing += row.number * row.crossing
    return EdgeTally(by_tier, fading, faded, within, crossing, share)


_DECIMALS = 6

Side = Literal["low", "high"]
"""The end at which a metric has left its range."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One health metric, see docs/how-to/monitor.md.

    Attributes:
        name: Name of the metric.
        value: A share in [0, 1], or a count; None if there is nothing to measure.
        low, high: Bounds of the healthy range, both inclusive.
        in_range: Whether the value is in range; None if it is not judged.
        sampled: Number of observations.
        note: What was counted, and why the value is not judged.
    """

    name: str
    value: float | None
    low: float
    high: float
    in_range: bool | None
    sampled: int
    note: str = ""

    @property
    def distance(self) -> float:
        """Distance of the value from the range, at least 0."""
        return (
            0.0 if self.value is None else max(0.0, self.low - self.value, self.value - self.high)
        )

    @property
    def side(self) -> Side | None:
        """The end at which it has left its range; None if it has not, or is not judged."""
        if self.in_range is not False or self.value is None:
            return None
        return "low" if self.value < self.low else "high"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Health of one namespace.

    Attributes:
        namespace: Name of the namespace.
        turn: Number of turns that it had.
        created: Time of measurement, in seconds since the epoch.
        metrics: All eight metrics, in a fixed order.
        edges: Number of edges by tier, for ``structure`` (from the text) and ``learned`` edges;
            extrapolated from a sample in a large corpus.
    """

    namespace: str
    turn: int
    created: float
    metrics: tuple[Metric, ...]
    edges: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Metric:
        """Return a metric by name.

        Raises:
            InvalidInputError: There is no metric of this name.
        """
        for metric in self.metrics:
            if metric.name == name:
                return metric
        msg = f"{name!r:.100} is not a health metric: use one of {', '.join(METRICS)}"
        raise InvalidInputError(msg)

    @property
    def out_of_range(self) -> set[str]:
        """Names of metrics out of range; metrics that are not judged do not count."""
        return {metric.name for metric in self.metrics if metric.in_range is False}

    @property
    def healthy(self) -> int:
        """Number of metrics that are in range."""
        return sum(metric.in_range is True for metric in self.metrics)

    @property
    def judged_count(self) -> int:
        """Number of metrics with enough observations to judge them."""
        return sum(metric.in_range is not None for metric in self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        return {**asdict(self), "healthy": self.healthy, "judged": self.judged_count}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "HealthReport":
        """The inverse of :meth:`to_dict`."""
        metrics = tuple(Metric(**metric) for metric in data["metrics"])
        return cls(data["namespace"], data["turn"], data["created"], metrics, data["edges"])


@dataclass(frozen=True, slots=True)
class _Value:
    """A metric before it is judged; if ``excluded``, ``note`` says why it is not judged."""

    value: float | None
    sampled: int
    note: str = ""
    excluded: bool = False


def assess_health(
    measured: HealthMeasurements,
    settings: HealthSettings,
    *,
    namespace: str,
    turn: int,
    created: float,
) -> HealthReport:
    """Compute the metrics, and judge them by their ranges.

    Args:
        measured: The measurements.
        settings: Ranges, and the least number of observations.
        namespace: Name of the namespace.
        turn: Number of turns that it had.
        created: Time of measurement, in seconds since the epoch.
    """
    metrics = tuple(_judge(name, _METRICS[name](measured), settings) for name in METRICS)
    edges = {
        "structure": _count_by_tier(measured.structure),
        "learned": _count_by_tier(measured.learned),
    }
    return HealthReport(namespace, turn, created, metrics, edges)


def _judge(name: str, found: _Value, settings: HealthSettings) -> Metric:
    low, high = settings.ranges[name]
    if found.value is None or found.excluded:
        value = None if found.value is None else round(found.value, _DECIMALS)
        return Metric(name, value, low, high, None, found.sampled, found.note)
    few = name not in _ALWAYS_JUDGED and found.sampled < settings.min_observations
    note = (
        f"{found.note}; fewer than {settings.min_observations}, not judged" if few else found.note
    )
    within = None if few else low <= found.value <= high
    return Metric(name, round(found.value, _DECIMALS), low, high, within, found.sampled, note)


def _measure_fired(measured: HealthMeasurements) -> _Value:
    number = len(measured.turns)
    if not number:
        return _Value(None, 0, "no turn yet")
    mean = sum(turn.fired for turn in measured.turns) / number
    return _Value(mean, number, f"entered by an edge, in the last {number} turns")


def _measure_cross_file(measured: HealthMeasurements) -> _Value:
    both = (measured.structure, measured.learned)
    sampled = sum(of.within for of in both)
    if measured.documents == 1:
        return _Value(None, sampled, "there is one document only")
    return _measure_ratio(both, "crossing", "within", "edges between document chunks")


def _measure_dormant(measured: HealthMeasurements) -> _Value:
    both = (measured.structure, measured.learned)
    return _measure_ratio(both, "faded", "fading", "edges that can fade")


def _measure_reflex(measured: HealthMeasurements) -> _Value:
    both = (measured.structure, measured.learned)
    total, sampled = _estimate(both, "edges"), sum(of.edges for of in both)
    if not total:
        return _Value(None, 0, "no edges")
    reflex = sum(of.tiers.get(Tier.REFLEX, 0) / of.share for of in both)
    return _Value(reflex / total, sampled, f"of {sampled} edges")


def _measure_compression(measured: HealthMeasurements) -> _Value:
    number = len(measured.turns)
    if not number or not measured.tokens:
        return _Value(None, number, "no turn yet" if measured.tokens else "no text yet")
    mean = sum(turn.tokens for turn in measured.turns) / number
    answer = sum(turn.returned for turn in measured.turns) / number
    note = f"words returned of {measured.tokens}, in the last {number} turns"
    if measured.nodes < _MIN_ANSWERS * answer:
        note += "; the corpus is smaller than five answers, not judged"
        return _Value(mean / measured.tokens, number, note, excluded=True)
    return _Value(mean / measured.tokens, number, note)


def _measure_promotion(measured: HealthMeasurements) -> _Value:
    if not measured.pairs:
        return _Value(None, 0, "nothing was used together yet")
    share = measured.promoted / measured.pairs
    return _Value(share, measured.pairs, f"of {measured.pairs} pairs used together")


def _measure_reconvergence(measured: HealthMeasurements) -> _Value:
    if not measured.splits:
        return _Value(0.0, 0, "nothing was split")
    share = measured.rejoined / measured.splits
    return _Value(share, measured.splits, f"of {measured.splits} nodes that were split")


def _measure_orphans(measured: HealthMeasurements) -> _Value:
    if not measured.nodes or not measured.sampled:
        return _Value(0.0, 0, "no documents")
    alone = f"{measured.isolated} of {measured.sampled} are reached by search alone"
    if measured.missing is None:
        return _Value(None, measured.sampled, f"the vector index was not asked; {alone}")
    scale = max(1.0, measured.nodes / measured.sampled)
    note = f"{measured.missing} of {measured.sampled} are not in the vector index; {alone}"
    return _Value(float(round(measured.missing * scale)), measured.sampled, note)


_MIN_ANSWERS = 5  # in a corpus of fewer answers, the ratio says nothing
_ALWAYS_JUDGED = frozenset({"orphan_nodes", "reconvergence_rate"})  # a single one is out of range
_METRICS: Mapping[str, Callable[[HealthMeasurements], _Value]] = {
    "avg_nodes_fired_per_query": _measure_fired,
    "cross_file_edge_pct": _measure_cross_file,
    "dormant_pct": _measure_dormant,
    "reflex_pct": _measure_reflex,
    "context_compression": _measure_compression,
    "proto_promotion_rate": _measure_promotion,
    "reconvergence_rate": _measure_reconvergence,
    "orphan_nodes": _measure_orphans,
}


def _measure_ratio(both: tuple[EdgeTally, ...], part: str, whole: str, what: str) -> _Value:
    total, sampled = _estimate(both, whole), sum(getattr(of, whole) for of in both)
    if not total:
        return _Value(None, 0, f"no {what}")
    return _Value(_estimate(both, part) / total, sampled, f"of {sampled} {what}")


def _estimate(both: tuple[EdgeTally, ...], name: str) -> float:
    """Extrapolate a count from the sampled edges to all edges."""
    return sum(float(getattr(of, name)) / of.share for of in both)


def _count_by_tier(of: EdgeTally) -> dict[str, int]:
    return {tier.value: round(of.tiers.get(tier, 0) / of.share) for tier in Tier}
