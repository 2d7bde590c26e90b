"""Which nodes to connect with a node that no edge leads to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.graph import Edge, EdgeKind, Vector


class Near(NamedTuple):
    """A node and its cosine."""

    cosine: float
    key: int


def nearest(
    wanted: NDArray[np.float32],
    blocks: Iterable[tuple[Sequence[int], Sequence[Vector]]],
    own: Sequence[int],
    most: int,
    least: float,
) -> list[list[Near]]:
    """The nearest nodes of each wanted vector, itself left out, nearest first.

    Args:
        wanted: Unit vectors, shape ``[n, d]``.
        blocks: All nodes, as keys and unit vectors, block by block.
        own: Keys of the wanted nodes.
        most: Neighbours of each.
        least: Lowest cosine.
    """
    found: list[list[Near]] = [[] for _ in own]
    for keys, vectors in blocks:
        cosines = wanted @ np.stack(vectors).astype(np.float32).T
        for place, row in enumerate(cosines):
            best = np.argsort(-row, kind="stable")[: most + 1].tolist()
            near = [Near(float(row[i]), keys[i]) for i in best if keys[i] != own[place]]
            both = sorted([*found[place], *near], key=lambda one: (-one.cosine, one.key))
            found[place] = [one for one in both if one.cosine >= least][:most]
    return found


def connecting(keys: Sequence[int], near: Sequence[Sequence[Near]], prior: float) -> Iterator[Edge]:
    """Edges to and from the nearest nodes, with the prior of similarity."""
    for key, neighbours in zip(keys, near, strict=True):
        for one in neighbours:
            for source, target in ((key, one.key), (one.key, key)):
                yield Edge(source, target, EdgeKind.SIMILAR, prior, prior)
