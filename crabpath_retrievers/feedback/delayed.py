"""Feedback that names no turn: how it is shared among the last ones (document 002 §3.4)."""

import math
from collections.abc import Sequence


def shares(clocks: Sequence[int], delay: float) -> list[float]:
    """The share of each turn, ``w_i = exp(-λ·Δ_i) / Σ_j exp(-λ·Δ_j)``.

    Args:
        clocks: Turn numbers of the candidates; Δ counts turns from the latest of them.
        delay: λ of at least 0; 0 shares equally.

    Returns:
        Shares in the order of ``clocks``, each in [0, 1], with sum 1.
    """
    latest = max(clocks, default=0)
    weights = [math.exp(-delay * (latest - clock)) for clock in clocks]
    total = sum(weights)
    return [weight / total for weight in weights]
