"""``make bench-health``: how long a health report of a large memory takes."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.clock import advance_clock
from benchmarks.speed.timing import time_call
from crabpath_retrievers import Settings
from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AdjustWeights,
    WeightDelta,
)
from crabpath_retrievers.core.records import (
    Edge,
    EdgeKind,
    Node,
    ReturnedDocument,
    SeedRecord,
    Turn,
)
from crabpath_retrievers.parts.operation.maintenance import measure_health
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.nodes import publish_staged, put_edges, stage_nodes
from crabpath_retrievers.vectors.base import FindExisting
from crabpath_retrievers.vectors.chroma import ChromaIndex
from crabpath_retrievers.vectors.embedder import to_unit_vector

_BATCH = 4000
_DIMENSION = 384
_INDEX_DIMENSION = 8  # dimensions in Chroma, which is asked for ids alone
_CHUNK_WORDS = 60  # of a chunk
_KINDS = (EdgeKind.MENTION, EdgeKind.MENTIONED_BY, EdgeKind.SHARED_TERM, EdgeKind.SIBLING)
_NAMESPACE = "bench"
_VISITED, _RETURNED = 12, 4
_TURNS = 200


def time_health(
    folder: Path, *, nodes: int, degree: int, learned: int, rounds: int
) -> dict[str, Any]:
    """Build a synthetic store and measure its health, as one JSON-safe record.

    Args:
        folder: For the store.
        nodes: Document chunks.
        degree: Edges of the text that leave each.
        learned: Weights of one namespace; twice as many pairs are counted.
        rounds: Measurements after the first one, which reads the files afresh.
    """
    building, _ = time_call(partial(build_synthetic, folder, nodes, degree, learned))
    store, index = GraphStore(folder), ChromaIndex.open_directory(folder / "vectors")
    try:
        ask = partial(_measure_once, store, index.find_existing)
        first, report = time_call(ask)
        rest = [time_call(ask)[0] for _ in range(rounds)]
        alone = [time_call(partial(_measure_once, store, None))[0] for _ in range(rounds)]
        facts = store.catalog.statistics()
    finally:
        index.close()
        store.close()
    return {
        "nodes": facts["nodes"],
        "edges": sum(facts["edges"].values()),  # type: ignore[attr-defined]
        "learned_weights": facts["learned_weights"],
        "built_s": round(building, 1),
        "first_s": round(first, 3),
        "then_s": _summarize(rest),
        "without_vector_index_s": _summarize(alone),
        "sampled": {metric.name: metric.sampled for metric in report.metrics},
        "values": {metric.name: metric.value for metric in report.metrics},
    }


def _measure_once(store: GraphStore, held: FindExisting | None) -> Any:
    return measure_health(store, _NAMESPACE, Settings(), held)


def _summarize(seconds: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(seconds), 3),
        "worst": round(max(seconds), 3),
    }


def build_synthetic(folder: Path, nodes: int, degree: int, learned: int) -> None:
    """Fill a store with chunks of random words, edges and what a namespace would have learned."""
    rng = np.random.default_rng(0)
    store, index = GraphStore(folder), ChromaIndex.open_directory(folder / "vectors")
    try:
        for batch in _split_batches(nodes):
            store.write(stage_nodes, [_make_node(number, rng) for number in batch])
            store.write(publish_staged)
            ids = [f"n{number}" for number in batch]
            few = [to_unit_vector(row) for row in rng.normal(size=(len(ids), _INDEX_DIMENSION))]
            index.upsert(ids, few, ids, [{} for _ in ids])
        keys = store.catalog.get_unlinked_keys()
        _link(store, keys, degree, rng)
        _learn(store, keys, learned, rng)
        for number in range(_TURNS):
            store.record(_make_turn(number, rng.choice(nodes, size=_VISITED).tolist()))
    finally:
        index.close()
        store.close()


def _split_batches(total: int) -> Iterator[range]:
    for start in range(0, total, _BATCH):
        yield range(start, min(total, start + _BATCH))


def _make_node(number: int, rng: np.random.Generator) -> Node:
    words = rng.zipf(1.3, size=_CHUNK_WORDS).tolist()
    return Node(
        id=f"n{number}",
        document=f"document {number // 3}",
        source=f"document {number // 3}",
        content=" ".join(f"w{word % 50_000}" for word in words),
        position=number % 3,
        digest=str(number),
        vector=to_unit_vector(rng.normal(size=_DIMENSION)),
    )


def _link(store: GraphStore, keys: list[int], degree: int, rng: np.random.Generator) -> None:
    priors = Settings().links.priors
    for batch in _split_batches(len(keys)):
        targets = rng.choice(len(keys), size=(len(batch), degree)).tolist()
        edges = tuple(
            Edge(keys[number], keys[target], kind, priors[kind], priors[kind])
            for number, row in zip(batch, targets, strict=True)
            for target, kind in zip(row, _KINDS * degree, strict=False)
        )
        store.write(put_edges, edges, [keys[number] for number in batch])


def _learn(store: GraphStore, keys: list[int], learned: int, rng: np.random.Generator) -> None:
    drawn = [(keys[a], keys[b]) for a, b in rng.choice(len(keys), size=(2 * learned, 2)).tolist()]
    pairs = list(dict.fromkeys((a, b) for a, b in drawn if a != b))
    kind = EdgeKind.CO_USED
    _in_parts(
        pairs[:learned],
        lambda part: AdjustWeights(
            _NAMESPACE, tuple(WeightDelta(a, b, kind, 0.37) for a, b in part)
        ),
        store,
    )
    _in_parts(
        pairs,
        lambda part: AddPairCounts(_NAMESPACE, tuple((a, b, kind, 1.0) for a, b in part)),
        store,
    )
    store.write(advance_clock, _NAMESPACE, exponent=0.1)


def _in_parts(
    pairs: list[tuple[int, int]], change: Callable[[Any], Any], store: GraphStore
) -> None:
    for batch in _split_batches(len(pairs)):
        store.apply([change(pairs[batch.start : batch.stop])])


def _make_turn(number: int, visited: list[int]) -> Turn:
    """A turn that entered twelve nodes, four of them from search, and returned four."""
    ids = [f"n{node}" for node in visited]
    seeds = tuple(SeedRecord(node, 0.5, 0.5, 0.5, 0.0) for node in ids[:_RETURNED])
    found = tuple(ReturnedDocument(node, 0.5, "seed", (), {}) for node in ids[-_RETURNED:])
    return Turn(
        f"t{number}", _NAMESPACE, 0, float(number), "?", seeds, (), tuple(ids), found, (), {}
    )
