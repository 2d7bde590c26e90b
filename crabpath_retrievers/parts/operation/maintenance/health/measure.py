"""Measures the health of a namespace, and stores the reports."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.settings import apply_knobs
from crabpath_retrievers.parts.operation.maintenance.changes import record_health
from crabpath_retrievers.parts.operation.maintenance.health.queries import HealthQueries
from crabpath_retrievers.parts.operation.maintenance.health.report import (
    HealthMeasurements,
    HealthReport,
    assess_health,
    count_edges,
)
from crabpath_retrievers.storage import Store
from crabpath_retrievers.storage.read.walk import Clock
from crabpath_retrievers.vectors.base import FindExisting


def measure_health(
    store: Store,
    namespace: str,
    settings: Settings,
    held: FindExisting | None = None,
    *,
    record: bool = True,
) -> HealthReport:
    """Measure the health of a namespace.

    Args:
        store: The graph store.
        namespace: Name of the namespace.
        settings: Ranges, sample sizes and tier thresholds.
        held: Asks the vector index which of some nodes it holds; None without an index.
        record: Whether to store the report; none is stored for a namespace without turns.
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
    """Replace the dormant share of a report by that after so many turns, if it leaves its range.

    Edges decay meanwhile as if they were not used.
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
    """Load the latest stored reports of a namespace, oldest first."""
    return [HealthReport.from_dict(kept) for kept in HealthQueries(store).history(namespace, limit)]


def collect_measurements(
    store: Store, clock: Clock, settings: Settings, held: FindExisting | None
) -> HealthMeasurements:
    """Collect the measurements that health is computed from, for the namespace of ``clock``."""
    health, tiers = settings.health, settings.tiers
    reads = HealthQueries(store)
    (chunks, tokens), keys = reads.corpus(), reads.sample(health.max_nodes)
    nodes = reads.describe_sample(keys, clock.key)
    seen = len(nodes) / chunks if chunks else 1.0
    learned, pairs = (
        reads.sample_learned(clock.key, health.max_weights),
        reads.count_pairs(clock.key, health.max_weights),
    )
    pieces = reads.get_split_parts()
    there = held([node.id for node in nodes]) if held and nodes else None
    return HealthMeasurements(
        turns=reads.turns(clock.key, health.max_turns),
        nodes=chunks,
        tokens=tokens,
        sampled=len(nodes),
        documents=len({node.document for node in nodes}),
        isolated=sum(node.isolated for node in nodes),
        missing=None if there is None else sum(node.id not in there for node in nodes),
        structure=count_edges(
            reads.count_structural(keys, clock.key), clock.exponent, tiers, min(1.0, seen) or 1.0
        ),
        learned=count_edges(learned.found, clock.exponent, tiers, learned.share),
        pairs=pairs.found[0],
        promoted=pairs.found[1],
        splits=len(set(pieces.values())),
        rejoined=len(_find_rejoined(store, clock, pieces, tiers.habitual)),
    )


def _find_rejoined(
    store: Store, clock: Clock, pieces: Mapping[int, str], habitual: float
) -> set[str]:
    """Find split nodes with only one part left, or with two parts used together again."""
    alone = {whole for whole, number in Counter(pieces.values()).items() if number == 1}
    return alone | {
        pieces[source]
        for (source, target), stored in HealthQueries(store).get_co_used(clock.key, pieces).items()
        if pieces.get(target) == pieces[source] and stored.decay_to(clock.exponent) >= habitual
    }
