"""Personalised PageRank over the pointers that one query has read (Haveliwala 2002, §3)."""

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.terms import Floats

Rows = NDArray[np.intp]


def pagerank(
    sources: Rows, targets: Rows, weights: Floats, restart: Floats, follow: float
) -> Floats:
    """How often a walker stands at each node, relative to the most visited one, in [0, 1].

    Solved for the nodes that pointers leave, which are few; all others only receive.

    Args:
        sources: Rows that the pointers leave, shape ``[E]``.
        targets: Rows that they lead to, shape ``[E]``.
        weights: Of the pointers, at least 0, shape ``[E]``.
        restart: Where the walker starts and starts again, at least 0, shape ``[n]``.
        follow: Chance of following a pointer rather than starting again, in [0, 1).
    """
    leaving = np.bincount(sources, weights=weights, minlength=len(restart))
    taken = follow * weights / np.maximum(leaving[sources], 1e-12)
    active, place = np.unique(sources, return_inverse=True)
    back = np.searchsorted(active, targets) % max(1, len(active))
    inner = active[back] == targets if len(active) else np.zeros(0, dtype=bool)
    among = np.eye(len(active))
    np.subtract.at(among, (back[inner], place[inner]), taken[inner])
    visits = np.linalg.solve(among, restart[active])
    arriving = np.bincount(targets, weights=taken * visits[place], minlength=len(restart))
    everywhere = restart + arriving
    relative: Floats = everywhere / everywhere.max()
    return relative
