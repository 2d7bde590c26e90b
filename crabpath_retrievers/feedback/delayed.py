"""Feedback that names no turn, shared among the latest turns.

Recency-weighted credit ``exp(-λ·Δ)`` as in the integration plan of [CrabPath]
(docs/bibliography.md).
"""

import math
from collections.abc import Sequence


def share_by_recency(clocks: Sequence[int], delay: float) -> list[float]:
    """Return the share of each turn, ``w_i = exp(-λ·Δ_i) / Σ_j exp(-λ·Δ_j)``.

    Args:
        clocks: Turn numbers of the candidates; Δ is the distance in turns to the latest of them.
        delay: λ, at least 0; 0 gives equal shares.

    Returns:
        Shares in the order of ``clocks``, each in [0, 1], summing to 1.
    """
    latest = max(clocks, default=0)
    weights = [math.exp(-delay * (latest - clock)) for clock in clocks]
    total = sum(weights)
    return [weight / total for weight in weights]
