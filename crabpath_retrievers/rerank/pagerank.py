"""Personalised PageRank over the edges that one query has read (Haveliwala 2002, §3)."""

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.terms import Floats

RowIndices = NDArray[np.intp]


def pagerank(
    sources: RowIndices, targets: RowIndices, weights: Floats, restart: Floats, follow: float
) -> Floats:
    """Stationary visits of each node relative to the most visited one, in [0, 1], shape ``[n]``.

    The linear system is solved for the few nodes with outgoing edges; all others only receive.

    Args:
        sources: Rows of the source nodes, shape ``[E]``.
        targets: Rows of the target nodes, shape ``[E]``.
        weights: Weights of the edges, at least 0, shape ``[E]``.
        restart: Restart weight of each node, at least 0, shape ``[n]``.
        follow: Probability of following an edge rather than restarting, in [0, 1).
    """
    outgoing = np.bincount(sources, weights=weights, minlength=len(restart))
    transition = follow * weights / np.maximum(outgoing[sources], 1e-12)
    active, row = np.unique(sources, return_inverse=True)
    back = np.searchsorted(active, targets) % max(1, len(active))
    inner = active[back] == targets if len(active) else np.zeros(0, dtype=bool)
    system = np.eye(len(active))
    np.subtract.at(system, (back[inner], row[inner]), transition[inner])
    visits = np.linalg.solve(system, restart[active])
    incoming = np.bincount(targets, weights=transition * visits[row], minlength=len(restart))
    total = restart + incoming
    relative: Floats = total / total.max()
    return relative
