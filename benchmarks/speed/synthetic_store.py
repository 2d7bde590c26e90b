"""A large synthetic store: real passages many times over, with noisy vectors and random edges."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from crabpath_lab.datasets import Dataset
from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.records import Edge, EdgeKind, Node, Vector
from crabpath_retrievers.ingest.chunking import Chunking
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.nodes import publish_staged, put_edges, stage_nodes
from crabpath_retrievers.vectors.embedder import to_unit_vector

_BATCH = 4000
_DEGREE = 10
_KINDS = (EdgeKind.MENTION, EdgeKind.MENTIONED_BY, EdgeKind.SHARED_TERM, EdgeKind.SIBLING)
_NOISE = 0.02  # per coordinate; cosine to the original about 0.93


def fill_synthetic(memory: CrabPath, small: CrabPath, dataset: Dataset, nodes: int) -> None:
    """Copy passages with noise until there are enough, then draw edges at random."""
    rng = np.random.default_rng(0)
    for batch in split_batches(_noisy_copies(small, dataset, nodes, rng), _BATCH):
        memory.store.write(stage_nodes, batch)
        memory.index.upsert(
            [node.id for node in batch],
            [to_unit_vector(node.vector) for node in batch],
            [node.content for node in batch],
            [node.metadata for node in batch],
        )
        memory.store.write(publish_staged)
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
        memory.store.write(put_edges, edges, list(sources))


def _noisy_copies(
    small: CrabPath, dataset: Dataset, nodes: int, rng: np.random.Generator
) -> Iterator[Node]:
    originals = Chunking(small.settings.ingest, split=False).nodes(dataset.documents)
    stored = small.store.catalog.vectors([node.id for node in originals])
    for number in range(nodes):
        node = originals[number % len(originals)]
        copy = number // len(originals)
        yield replace(
            node,
            id=f"{node.id}-{copy}",
            document=f"{node.id}-{copy}",
            names=tuple(f"{name} {copy}" if copy else name for name in node.names),
            vector=add_noise(stored[node.id], rng),
        )


def add_noise(vector: Vector, rng: np.random.Generator) -> Vector:
    """A unit vector near to another one, as if of the same text in other words."""
    noise = rng.normal(0.0, _NOISE, size=vector.size).astype(np.float32)
    return to_unit_vector(np.asarray(vector, dtype=np.float32) + noise)
