"""Ordering documents so that together they contain the query's information.

Greedy maximisation of relevance plus information not yet covered, a submodular objective
(Nemhauser, Wolsey & Fisher 1978: within 1 - 1/e of the best set), as in MMR (Carbonell &
Goldstein 1998).
"""

import numpy as np

from crabpath_retrievers.terms import Floats


def greedy_coverage(
    odds: Floats, term_weights: Floats, weight: float, k: int
) -> tuple[list[int], Floats]:
    """Order all documents; the first k are chosen greedily by odds plus added information.

    Args:
        odds: Log-odds of relevance without coverage, shape ``[n]``.
        term_weights: Information of the query in each document by word, shape ``[n, Q]``.
        weight: Log-odds per unit of information, at least 0.
        k: Number of documents that are chosen greedily.

    Returns:
        Indices, best first, and the information that each document added when it was chosen,
        shape ``[n]``. ``odds + weight * added`` never rises along the order.
    """
    uncovered = np.ones(term_weights.shape[1])
    added = np.zeros(len(odds))
    remaining = odds.astype(np.float64)
    order: list[int] = []
    for _ in range(min(k, len(odds))):
        gains = term_weights @ uncovered
        best = int(np.argmax(remaining + weight * gains))
        order.append(best)
        added[best] = gains[best]
        remaining[best] = -np.inf
        uncovered = uncovered * (term_weights[best] == 0)
    rest = np.isfinite(remaining)
    added[rest] = (term_weights @ uncovered)[rest]
    others = np.argsort(-(remaining + weight * added), kind="stable")[: int(rest.sum())]
    return [*order, *others.tolist()], added
