"""Health of a namespace: eight metrics from counters and samples, judged by their ranges, stored.

The cost of a report does not grow with the corpus. Learned rows are read in full up to a limit;
beyond it, those of a fixed pseudo-random share of the source nodes.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.config import HealthSettings, Settings, TierSettings
from crabpath_retrievers.config.operation import METRICS
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.core.records import TYPED_KINDS, EdgeKind, StoredWeight, Tier
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.operation.maintenance.changes import record_health
from crabpath_retrievers.storage import Store
from crabpath_retrievers.storage.read.catalog import KEY_BOUNDS
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.storage.schema import (
    contents,
    edges,
    health_reports,
    meta,
    namespaces,
    nodes,
    overlay,
    pair_counts,
    turns,
)
from crabpath_retrievers.storage.sql_tools import Queries
from crabpath_retrievers.vectors.base import FindExisting

KINDS_NOT_WALKED = [kind.value for kind in (EdgeKind.STOP, *TYPED_KINDS)]
"""Numbers of the edge kinds that retrieval does not follow; health does not count them."""

_GOLDEN, _WORD = 2_654_435_761, 1 << 32  # Fibonacci hashing: consecutive keys are spread evenly
_MAX_PARTS = 20_000
_SEED = 0
_MAX_DRAWS = 20  # keys drawn per wanted node, for stores with many deleted keys
_EDGE = ("source", "target", "kind")


class EdgeGroup(NamedTuple):
    """A group of edges with equal values.

    ``crossing`` says whether they connect different documents; None where an end is a note.
    """

    stored: StoredWeight
    crossing: bool | None
    number: int


class TurnFacts(NamedTuple):
    """Counts of one turn: nodes reached by an edge, returned documents, their tokens."""

    fired: int
    returned: int
    tokens: int


class HealthQueries(Queries):
    """Reads for health reports; samples use a fixed seed."""

    def corpus(self) -> tuple[int, int]:
        """Number of document chunks, and of the tokens of their titles and texts."""
        query = sa.select(meta.c.name, meta.c.value).where(meta.c.name.in_(("nodes", "tokens")))
        found = {name: int(value) for name, value in self._rows(query)}
        return found.get("nodes", 0), found.get("tokens", 0)

    def sample(self, limit: int) -> list[int]:
        """Keys of about ``limit`` uniformly drawn document chunks, or of all if there are fewer."""
        own = sa.select(nodes.c.key).where(nodes.c.owner == 0).order_by(nodes.c.key)
        total, _ = self.corpus()
        ((low, high),) = self._rows(KEY_BOUNDS)
        if low is None or total <= limit:
            return self._scalars(own.limit(limit))
        drawn = _draw_keys(low, high, limit, total)
        return [key for (key,) in self._rows_in(own, nodes.c.key, drawn)]

    def describe_sample(self, keys: Sequence[int], namespace: int) -> list[Any]:
        """Read chunks by key: ``id``, ``document``, and whether each is ``isolated``.

        An isolated chunk has no edge that the namespace (by key) sees.
        """
        mine = overlay.c.namespace == namespace
        walked = overlay.c.kind.not_in(KINDS_NOT_WALKED)
        touched = sa.or_(
            sa.exists().where(edges.c.source == nodes.c.key),
            sa.exists().where(edges.c.target == nodes.c.key),
            sa.exists().where(mine, walked, overlay.c.source == nodes.c.key),
            sa.exists().where(mine, walked, overlay.c.target == nodes.c.key),
        )
        query = sa.select(nodes.c.id, contents.c.document, (~touched).label("isolated"))
        query = query.join(contents, contents.c.node == nodes.c.key)
        return self._rows_in(query, nodes.c.key, keys)

    def turns(self, namespace: int, limit: int) -> list[TurnFacts]:
        """Read the latest ``limit`` turns of a namespace (by key), newest first.

        Documents that were deleted in the meantime count 0.
        """
        query = (
            sa.select(turns.c.record)
            .where(turns.c.namespace == namespace)
            .order_by(turns.c.clock.desc())
            .limit(limit)
        )
        records = [from_json(record) for record in self._scalars(query)]
        returned = [[item["node"] for item in record["returned"]] for record in records]
        words = self._lengths({node for of_turn in returned for node in of_turn}, namespace)
        return [
            TurnFacts(
                len(record["visited"]) - len(record["seeds"]),
                len(of_turn),
                sum(words.get(node, 0) for node in of_turn),
            )
            for record, of_turn in zip(records, returned, strict=True)
        ]

    def _lengths(self, ids: set[str], namespace: int) -> dict[str, int]:
        query = (
            sa.select(nodes.c.id, contents.c.length)
            .join(contents, contents.c.node == nodes.c.key)
            .where(nodes.c.owner.in_((0, namespace)))
        )
        return {node: length for node, length in self._rows_in(query, nodes.c.id, sorted(ids))}

    def history(self, namespace: str, limit: int) -> list[dict[str, Any]]:
        """The latest ``limit`` reports of a namespace, oldest first."""
        query = (
            sa.select(health_reports.c.report)
            .join(namespaces, namespaces.c.key == health_reports.c.namespace)
            .where(namespaces.c.name == namespace)
            .order_by(health_reports.c.sequence.desc())
            .limit(limit)
        )
        return [json.loads(report) for report in self._scalars(query)][::-1]

    def count_structural(self, keys: Sequence[int], namespace: int) -> list[EdgeGroup]:
        """Count structural edges that leave the nodes ``keys``, in groups of equal weight.

        Edges whose weight a namespace (by key) has learned are left out.
        """
        near, far = contents.alias(), contents.alias()
        same = [overlay.c[name] == edges.c[name] for name in _EDGE]
        learned = sa.exists().where(overlay.c.namespace == namespace, *same)
        crossing = near.c.document != far.c.document
        what = (edges.c.prior, edges.c.decay_at, edges.c.floor, nodes.c.authority, crossing)
        query = (
            sa.select(*what, sa.func.count())
            .select_from(
                edges.join(nodes, nodes.c.key == edges.c.target)
                .join(near, near.c.node == edges.c.source)
                .join(far, far.c.node == edges.c.target)
            )
            .where(~learned)
            .group_by(*what)
        )
        rows = self._rows_in(query, edges.c.source, keys)
        return [EdgeGroup(StoredWeight(*stored), crossing, n) for *stored, crossing, n in rows]

    def sample_learned(self, namespace: int, limit: int) -> tuple[list[EdgeGroup], float]:
        """Sample learned weights of a namespace (by key) that retrieval follows, about ``limit``.

        Returns:
            The weights; and the share of all that was read, in (0, 1].
        """
        near, far, ends = contents.alias(), contents.alias(), nodes.alias()
        same = sa.and_(*(overlay.c[name] == edges.c[name] for name in _EDGE))
        documents = (ends.c.owner == 0) & (nodes.c.owner == 0)
        own = (overlay.c.namespace == namespace, overlay.c.kind.not_in(KINDS_NOT_WALKED))
        query = (
            sa.select(
                overlay.c.weight,
                overlay.c.decay_at,
                sa.func.coalesce(edges.c.floor, 0.0),
                nodes.c.authority,
                sa.case((documents, near.c.document != far.c.document)),
            )
            .select_from(
                overlay.join(nodes, nodes.c.key == overlay.c.target)
                .join(ends, ends.c.key == overlay.c.source)
                .join(near, near.c.node == overlay.c.source)
                .join(far, far.c.node == overlay.c.target)
                .outerjoin(edges, same)
            )
            .where(*own)
        )
        with self._store.connect() as connection:
            share, condition = _sample_condition(connection, overlay, own, limit)
            rows = connection.execute(query.where(condition)).all()
        groups = [EdgeGroup(StoredWeight(*stored), crossing, 1) for *stored, crossing in rows]
        return groups, share

    def count_pairs(self, namespace: int, limit: int) -> tuple[int, int, float]:
        """Count pairs of documents that were used together, in a sample of about ``limit``.

        Returns:
            The number of pairs; the number of those with an edge; and the share of all pairs that
            was read.
        """
        own = (
            pair_counts.c.namespace == namespace,
            pair_counts.c.kind == EdgeKind.CO_USED.value,
            pair_counts.c["count"] > 0,
        )
        same = [overlay.c[name] == pair_counts.c[name] for name in ("namespace", *_EDGE)]
        query = (
            sa.select(sa.func.count(), sa.func.count(overlay.c.weight))
            .select_from(pair_counts.outerjoin(overlay, sa.and_(*same)))
            .where(*own)
        )
        with self._store.connect() as connection:
            share, condition = _sample_condition(connection, pair_counts, own, limit)
            found, promoted = connection.execute(query.where(condition)).one()
        return found, promoted, share

    def get_split_parts(self) -> dict[int, str]:
        """Parts of split documents: id of the whole by key of the part, limited to 20,000."""
        query = (
            sa.select(contents.c.node, contents.c.split_from)
            .where(contents.c.split_from.is_not(None))
            .order_by(contents.c.split_from)
            .limit(_MAX_PARTS)
        )
        return {key: whole for key, whole in self._rows(query)}

    def get_co_used(
        self, namespace: int, keys: Iterable[int]
    ) -> dict[tuple[int, int], StoredWeight]:
        """Read the ``co_used`` edges of a namespace (by key) that leave the nodes ``keys``.

        They are by keys of both ends.
        """
        query = (
            sa.select(
                overlay.c.source,
                overlay.c.target,
                overlay.c.weight,
                overlay.c.decay_at,
                nodes.c.authority,
            )
            .join(nodes, nodes.c.key == overlay.c.target)
            .where(overlay.c.namespace == namespace, overlay.c.kind == EdgeKind.CO_USED.value)
        )
        return {
            (source, target): StoredWeight(weight, decay_at, authority=authority)
            for source, target, weight, decay_at, authority in self._rows_in(
                query, overlay.c.source, keys
            )
        }


def _sample_condition(
    connection: sa.Connection, table: sa.Table, own: Sequence[Any], limit: int
) -> tuple[float, sa.ColumnElement[bool]]:
    """Compute the share of rows to read, and the condition on their source that selects them.

    ``own`` are conditions on the rows of the table; about ``limit`` of those are selected.
    """
    total = connection.scalar(sa.select(sa.func.count()).select_from(table).where(*own)) or 0
    if total <= limit:
        return 1.0, sa.true()
    share = limit / total
    return share, (table.c.source * _GOLDEN) % _WORD < int(share * _WORD)


def _draw_keys(low: int, high: int, limit: int, total: int) -> list[int]:
    """Draw random keys in [low, high], so many that about ``limit`` of them exist.

    ``total`` is the number of keys that exist.
    """
    span = high - low + 1
    size = min(span, limit * _MAX_DRAWS, -(-limit * span // total))
    drawn = np.random.default_rng(_SEED).choice(span, size=size, replace=False)
    return [low + offset for offset in sorted(drawn.tolist())]


@dataclass(frozen=True, slots=True)
class EdgeTally:
    """Counts of a sample of edges.

    Edges that decay can take below the habitual threshold are ``fading``, dormant ones of these
    ``faded``; ``within`` are edges between two document chunks, ``crossing`` those of them that
    lead to another document. ``share`` is the sampled share of all such edges.
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

    Of chunks, ``isolated`` ones have no edge, and ``missing`` ones are not in the vector index;
    None if it was not asked. ``structure`` are the edges of the text without a learned weight. A
    split node has ``rejoined`` when one part is left, or two are used together again.
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
    """Count edges by tier, and those that fade or lead to another document.

    ``exponent`` is the decay of the namespace now; ``share`` is the part of all edges that ``rows``
    has.
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
        """The end of the range that the value is beyond; None if it is within, or is not judged."""
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

    ``turn`` is the number of the namespace's last turn, ``created`` the time of the report.
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
    """Extrapolate a count from the sampled edges to all edges.

    ``name`` is that of a count of :class:`EdgeTally`; those of ``both`` groups are added up.
    """
    return sum(float(getattr(of, name)) / of.share for of in both)


def _count_by_tier(of: EdgeTally) -> dict[str, int]:
    return {tier.value: round(of.tiers.get(tier, 0) / of.share) for tier in Tier}


def measure_health(
    store: Store,
    namespace: str,
    settings: Settings,
    held: FindExisting | None = None,
    *,
    record: bool = True,
) -> HealthReport:
    """Measure the health of a namespace.

    ``held`` selects, of some ids, those that the vector index holds; None does not look. If
    ``record``, the report is stored, unless the namespace has no turns.
    """
    store.flush()
    clock = store.walk.get_clock(namespace)
    measured = collect_measurements(store, clock, apply_knobs(settings, clock.knobs), held)
    report = assess_health(
        measured, settings.health, namespace=namespace, turn=clock.turn, created=time.time()
    )
    if record and clock.key:
        kept = settings.health.max_reports
        facts = report.to_dict()
        store.write(record_health, namespace, clock.turn, report.created, facts, kept)
    return report


def project_dormant_share(
    store: Store, namespace: str, settings: Settings, report: HealthReport, turns: int
) -> HealthReport:
    """Replace the dormant share of a report by the one after ``turns``, if that is out of range.

    The prediction assumes that no edge is used until then.
    """
    clock = store.walk.get_clock(namespace)
    own = apply_knobs(settings, clock.knobs)
    fading = turns * math.log(2.0) / own.learning.half_life if own.learning.decay else 0.0
    ahead = clock._replace(exponent=clock.exponent + fading)
    then = assess_health(
        collect_measurements(store, ahead, own, None),
        settings.health,
        namespace=namespace,
        turn=clock.turn,
        created=report.created,
    )["dormant_pct"]
    if report["dormant_pct"].in_range is False or then.in_range is not False:
        return report
    projected = replace(then, note=f"{then.note}; in {turns} turns, of what is not used until then")
    metrics = (projected if m.name == projected.name else m for m in report.metrics)
    return replace(report, metrics=tuple(metrics))


def load_past_reports(store: Store, namespace: str, limit: int) -> list[HealthReport]:
    """Load the latest ``limit`` stored reports of a namespace, oldest first."""
    return [HealthReport.from_dict(kept) for kept in HealthQueries(store).history(namespace, limit)]


def collect_measurements(
    store: Store, clock: Clock, settings: Settings, held: FindExisting | None
) -> HealthMeasurements:
    """Collect the measurements that health is computed from, for the namespace of ``clock``.

    ``held`` selects, of some ids, those that the vector index holds; None does not look.
    """
    health, tiers = settings.health, settings.tiers
    reads = HealthQueries(store)
    (chunks, tokens), keys = reads.corpus(), reads.sample(health.max_nodes)
    nodes = reads.describe_sample(keys, clock.key)
    seen = len(nodes) / chunks if chunks else 1.0
    learned, share = reads.sample_learned(clock.key, health.max_weights)
    pairs, promoted, _ = reads.count_pairs(clock.key, health.max_weights)
    pieces = reads.get_split_parts()
    there = held([node.id for node in nodes]) if held and nodes else None
    return HealthMeasurements(
        turns=reads.turns(clock.key, health.max_turns),
        nodes=chunks,
        tokens=tokens,
        sampled=len(nodes),
        documents=len({node.document for node in nodes}),
        isolated=sum(bool(node.isolated) for node in nodes),
        missing=None if there is None else sum(node.id not in there for node in nodes),
        structure=count_edges(
            reads.count_structural(keys, clock.key), clock.exponent, tiers, min(1.0, seen) or 1.0
        ),
        learned=count_edges(learned, clock.exponent, tiers, share),
        pairs=pairs,
        promoted=promoted,
        splits=len(set(pieces.values())),
        rejoined=len(_find_rejoined(store, clock, pieces, tiers.habitual)),
    )


def _find_rejoined(
    store: Store, clock: Clock, pieces: Mapping[int, str], habitual: float
) -> set[str]:
    """Find split nodes with only one part left, or with two parts used together again.

    ``pieces`` has the id of the whole by key of the part; ``habitual`` is the least weight of an
    edge between parts used together.
    """
    alone = {whole for whole, number in Counter(pieces.values()).items() if number == 1}
    return alone | {
        pieces[source]
        for (source, target), stored in HealthQueries(store).get_co_used(clock.key, pieces).items()
        if pieces.get(target) == pieces[source] and stored.decay_to(clock.exponent) >= habitual
    }
