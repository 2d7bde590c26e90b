"""Personalised PageRank over the pointers that one query has read (Haveliwala 2002, §3)."""

import numpy as np

from crabpath_retrievers.terms import Floats


def pagerank(weights: Floats, restart: Floats, follow: float) -> Floats:
    """How often a walker stands at each node, relative to the most visited one, in [0, 1].

    Args:
        weights: Pointers from row to column, at least 0, shape ``[n, n]``.
        restart: Where the walker starts and starts again, at least 0, shape ``[n]``.
        follow: Chance of following a pointer rather than starting again, in [0, 1).
    """
    leaving = weights.sum(axis=1, keepdims=True)
    steps = np.divide(weights, leaving, out=np.zeros_like(weights), where=leaving > 0)
    visits = np.linalg.solve(np.eye(len(restart)) - follow * steps.T, restart)
    relative: Floats = visits / visits.max()
    return relative
