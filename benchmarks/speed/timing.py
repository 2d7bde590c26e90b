"""Timing: single calls, and pairs of calls that are made in turns."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

K = 5  # documents per query, the same for every method
_RESAMPLES = 1000

T = TypeVar("T")


def time_call(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that an action took, and its result."""
    begun = time.perf_counter()
    result = action()
    return time.perf_counter() - begun, result


def time_pairs(
    own: Callable[[T], Any],
    other: Callable[[T], Any],
    items: Sequence[T],
    *,
    before: Callable[[], Any],
    rounds: int = 3,
) -> list[tuple[float, float]]:
    """Milliseconds of both calls for each item, in turns; of each the least of some rounds.

    Args:
        own: The measured call.
        other: What it is compared with.
        items: What both are called with.
        before: Called before every call, untimed.
        rounds: How often each is called.
    """
    pairs = []
    for item in items:
        least = {own: float("inf"), other: float("inf")}
        for number in range(rounds):
            for call in (own, other) if number % 2 else (other, own):
                before()
                least[call] = min(least[call], time_call(partial(call, item))[0] * 1000)
        pairs.append((least[own], least[other]))
    return pairs


def bootstrap_median(values: Sequence[float]) -> tuple[float, float, float]:
    """The median with its 95 % bootstrap interval: median, low, high."""
    drawn = np.random.default_rng(0).choice(values, size=(_RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(np.median(values)), float(low), float(high)
