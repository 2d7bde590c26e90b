"""A large synthetic store: real passages many times over, with noisy vectors and random edges."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.timing import time_call, time_without_embedding
from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.changes import PublishStaged, PutEdges, StageNodes
from crabpath_retrievers.core.graph import Edge, EdgeKind, Node, Vector
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.scoring.statistics import percentiles
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.vectors.embedder import to_unit_vector

_BATCH = 4000
_DEGREE = 10
_KINDS = (EdgeKind.MENTION, EdgeKind.MENTIONED_BY, EdgeKind.SHARED_TERM, EdgeKind.SIBLING)
_NOISE = 0.02  # per coordinate; cosine to the original about 0.93


def measure_scale(
    small: CrabPath,
    dataset: Dataset,
    queries: Sequence[tuple[str, Vector]],
    warm_up: Sequence[tuple[str, Vector]],
    folder: Path,
    *,
    nodes: int,
) -> dict[str, Any]:
    """Latency, opening time and memory of a store with ``nodes`` nodes and ten edges each."""
    memory = CrabPath.open(folder, embeddings=small.embedder.embeddings)
    memory.add_documents(dataset.documents[:1], split=False)
    fill_synthetic(memory, small, dataset, nodes)
    memory.close()
    opening, memory = time_call(lambda: CrabPath.open(folder, embeddings=small.embedder.embeddings))
    latency = time_without_embedding(memory, queries, warm_up)
    statistics = memory.info()
    memory.close()
    return {
        "nodes": statistics["nodes"],
        "edges": sum(statistics["edges"].values()),
        "without_embedding_ms": percentiles(latency),
        "open_s": round(opening, 3),
        "graph_side": measure_store_footprint(folder),
    }


def fill_synthetic(memory: CrabPath, small: CrabPath, dataset: Dataset, nodes: int) -> None:
    """Copy passages with noise until there are enough, then draw edges at random."""
    rng = np.random.default_rng(0)
    for batch in _group_batches(_noisy_copies(small, dataset, nodes, rng)):
        memory.store.apply([StageNodes(tuple(batch))])
        memory.index.upsert(
            [node.id for node in batch],
            [to_unit_vector(node.vector) for node in batch],
            [node.content for node in batch],
            [node.metadata for node in batch],
        )
        memory.store.apply([PublishStaged()])
    keys = memory.store.catalog.get_unlinked_keys()
    priors = memory.settings.links.priors
    for start in range(0, len(keys), _BATCH):
        sources = keys[start : start + _BATCH]
        targets = rng.choice(len(keys), size=(len(sources), _DEGREE))
        edges = tuple(
            Edge(source, keys[target], kind, priors[kind], priors[kind])
            for source, row in zip(sources, targets.tolist(), strict=True)
            for target, kind in zip(row, _KINDS * _DEGREE, strict=False)
        )
        memory.store.apply([PutEdges(edges, tuple(sources))])


def _noisy_copies(
    small: CrabPath, dataset: Dataset, nodes: int, rng: np.random.Generator
) -> Iterator[Node]:
    originals = Chunking(small.settings.ingest, split=False).nodes(dataset.documents)
    stored = small.store.catalog.vectors([node.id for node in originals])
    for number in range(nodes):
        node = originals[number % len(originals)]
        noise = rng.normal(0.0, _NOISE, size=stored[node.id].size).astype(np.float32)
        copy = number // len(originals)
        yield replace(
            node,
            id=f"{node.id}-{copy}",
            document=f"{node.id}-{copy}",
            names=tuple(f"{name} {copy}" if copy else name for name in node.names),
            vector=to_unit_vector(np.asarray(stored[node.id], dtype=np.float32) + noise),
        )


def _group_batches(nodes: Iterator[Node]) -> Iterator[list[Node]]:
    batch: list[Node] = []
    for node in nodes:
        batch.append(node)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def measure_store_footprint(folder: Path) -> dict[str, float]:
    """Opening time and peak memory of the graph store alone, in a process of its own."""
    result = subprocess.run(  # noqa: S603  our own interpreter and module
        [sys.executable, "-m", "benchmarks.speed.store_footprint", str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(result.stdout)
    return figures
