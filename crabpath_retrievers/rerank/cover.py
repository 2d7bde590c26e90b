"""Ordering documents so that together they hold what the query asks for.

Greedy maximisation of relevance plus information not yet held, a submodular objective (Nemhauser,
Wolsey & Fisher 1978: within 1 - 1/e of the best set), as in MMR (Carbonell & Goldstein 1998).
"""

import numpy as np

from crabpath_retrievers.terms import Floats


def complementary(odds: Floats, held: Floats, weight: float, k: int) -> tuple[list[int], Floats]:
    """An order of all documents; the first k are chosen one by one, each for what it adds.

    Args:
        odds: Log-odds of relevance without what is added, shape ``[n]``.
        held: Information of the query that each document holds, by word, shape ``[n, Q]``.
        weight: Log-odds per unit of information, at least 0.
        k: How many are chosen for what they add to those before them.

    Returns:
        Indices, best first, and the information that each added when it was chosen, shape
        ``[n]``. ``odds + weight * added`` never rises along the order.
    """
    left = np.ones(held.shape[1])
    added = np.zeros(len(odds))
    waiting = odds.astype(np.float64)
    order: list[int] = []
    for _ in range(min(k, len(odds))):
        adds = held @ left
        best = int(np.argmax(waiting + weight * adds))
        order.append(best)
        added[best] = adds[best]
        waiting[best] = -np.inf
        left = left * (held[best] == 0)
    rest = np.isfinite(waiting)
    added[rest] = (held @ left)[rest]
    others = np.argsort(-(waiting + weight * added), kind="stable")[: int(rest.sum())]
    return [*order, *others.tolist()], added
