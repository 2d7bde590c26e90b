"""Measuring a namespace of a store, and keeping what was found."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from crabpath_retrievers.changes.health import RecordHealth
from crabpath_retrievers.config import Settings
from crabpath_retrievers.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.health.measured import Measured, tally
from crabpath_retrievers.health.report import HealthReport, assess
from crabpath_retrievers.knobs import tuned
from crabpath_retrievers.seeds.index import Held
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock


def checkup(
    store: GraphStore,
    namespace: str,
    settings: Settings,
    held: Held | None = None,
    *,
    record: bool = True,
) -> HealthReport:
    """How well a namespace is.

    Args:
        store: Where it is.
        namespace: By name.
        settings: Ranges, sizes of samples, bars between tiers.
        held: Asks the vector index; None where there is none at hand.
        record: Whether the report is kept; of a namespace that was never used none is.
    """
    store.settle()
    clock = store.walk.clock(namespace)
    measured = measure(store, clock, tuned(settings, clock.knobs), held)
    report = assess(
        measured, settings.health, namespace=namespace, turn=clock.turn, created=time.time()
    )
    if record and clock.key:
        kept = settings.health.max_reports
        facts = report.to_dict()
        store.apply([RecordHealth(namespace, clock.turn, report.created, facts, kept)])
    return report


def foreseen(
    store: GraphStore, namespace: str, settings: Settings, report: HealthReport, turns: int
) -> HealthReport:
    """The report with the dormant share that is to come, where that would be out of range.

    Args:
        store: Where the namespace is.
        namespace: By name.
        settings: As for :func:`checkup`.
        report: How it is now.
        turns: How far ahead; what is not used until then fades so long.
    """
    clock = store.walk.clock(namespace)
    own = tuned(settings, clock.knobs)
    fading = turns * math.log(2.0) / own.learning.half_life if own.learning.decay else 0.0
    ahead = clock._replace(exponent=clock.exponent + fading)
    then = assess(
        measure(store, ahead, own, None),
        settings.health,
        namespace=namespace,
        turn=clock.turn,
        created=report.created,
    )["dormant_pct"]
    if report["dormant_pct"].in_range is False or then.in_range is not False:
        return report
    told = replace(then, note=f"{then.note}; in {turns} turns, of what is not used until then")
    metrics = (told if metric.name == told.name else metric for metric in report.metrics)
    return replace(report, metrics=tuple(metrics))


def past_reports(store: GraphStore, namespace: str, limit: int) -> list[HealthReport]:
    """The latest reports that were kept of a namespace, oldest first."""
    return [HealthReport.from_dict(kept) for kept in store.health.history(namespace, limit)]


def measure(store: GraphStore, clock: Clock, settings: Settings, held: Held | None) -> Measured:
    """The numbers that health is judged by, for the namespace of ``clock``."""
    health, tiers = settings.health, settings.tiers
    corpus, keys = store.health.corpus(), store.health.sample(health.max_nodes)
    nodes = store.health.sampled(keys, clock.key)
    edges = store.health.edges
    seen = len(nodes) / corpus.nodes if corpus.nodes else 1.0
    learned, pairs = (
        edges.learned(clock.key, health.max_weights),
        edges.pairs(clock.key, health.max_weights),
    )
    pieces = edges.pieces()
    there = held([node.id for node in nodes]) if held and nodes else None
    return Measured(
        turns=store.health.turns(clock.key, health.max_turns),
        nodes=corpus.nodes,
        tokens=corpus.tokens,
        sampled=len(nodes),
        documents=len({node.document for node in nodes}),
        isolated=sum(node.isolated for node in nodes),
        missing=None if there is None else sum(node.id not in there for node in nodes),
        structure=tally(
            edges.structure(keys, clock.key), clock.exponent, tiers, min(1.0, seen) or 1.0
        ),
        learned=tally(learned.found, clock.exponent, tiers, learned.share),
        pairs=pairs.found[0],
        promoted=pairs.found[1],
        splits=len(set(pieces.values())),
        rejoined=len(_rejoined(store, clock, pieces, tiers.habitual)),
    )


def _rejoined(
    store: GraphStore, clock: Clock, pieces: Mapping[int, str], habitual: float
) -> set[str]:
    """Split nodes of which one piece is left, or two are used together again."""
    alone = {whole for whole, number in Counter(pieces.values()).items() if number == 1}
    return alone | {
        pieces[joint.source]
        for joint in store.health.edges.together(clock.key, pieces)
        if pieces.get(joint.target) == pieces[joint.source]
        and effective_weight(
            joint.weight, 0.0, joint.mark, clock.exponent, DECAY_RATES[joint.authority]
        )
        >= habitual
    }
