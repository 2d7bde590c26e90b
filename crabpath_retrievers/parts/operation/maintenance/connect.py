"""Connects isolated nodes, which no edge leads to, with their nearest neighbours."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.records import Edge, EdgeKind, Vector, stretch_cosine


class NearNode(NamedTuple):
    """Key of a node, and its similarity to another one, at most 1."""

    similarity: float
    key: int


def find_neighbours(
    wanted: NDArray[np.float32],
    blocks: Iterable[tuple[Sequence[int], Sequence[Vector]]],
    own: Sequence[int],
    most: int,
    least: float,
    stretch: float = 1.0,
) -> list[list[NearNode]]:
    """Find the nearest other nodes of each vector, nearest first.

    Args:
        wanted: Unit vectors of isolated nodes, shape ``[n, d]``.
        blocks: Keys and unit vectors of all nodes, block by block.
        own: Keys of the isolated nodes, in the order of ``wanted``.
        most: Largest number of neighbours per node.
        least: Least similarity of a neighbour.
        stretch: Of the embedder.
    """
    neighbours: list[list[NearNode]] = [[] for _ in own]
    for keys, vectors in blocks:
        similarities = stretch_cosine(wanted @ np.stack(vectors).astype(np.float32).T, stretch)
        for place, row in enumerate(similarities):
            best = np.argsort(-row, kind="stable")[: most + 1].tolist()
            near = [NearNode(float(row[i]), keys[i]) for i in best if keys[i] != own[place]]
            both = sorted(
                [*neighbours[place], *near], key=lambda node: (-node.similarity, node.key)
            )
            neighbours[place] = [node for node in both if node.similarity >= least][:most]
    return neighbours


def make_similar_edges(
    keys: Sequence[int], near: Sequence[Sequence[NearNode]], prior: float
) -> Iterator[Edge]:
    """Yield edges to and from the nearest nodes, with the prior of ``similar`` edges."""
    for key, neighbours in zip(keys, near, strict=True):
        for one in neighbours:
            for source, target in ((key, one.key), (one.key, key)):
                yield Edge(source, target, EdgeKind.SIMILAR, prior, prior)
