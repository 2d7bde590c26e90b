"""Timing queries."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.graph import Vector

K = 5  # documents per query, the same for every method


def time_without_embedding(
    memory: CrabPath,
    queries: Sequence[tuple[str, Vector]],
    warm_up: Sequence[tuple[str, Vector]],
) -> list[float]:
    """Milliseconds of seeds, walk and rank with the query vector given, after other queries."""
    for text, vector in warm_up:
        memory.retrieve(text, k=K, vector=vector)
    found = []
    for text, vector in queries:
        memory.store.flush()
        seconds, _ = time_call(partial(memory.retrieve, text, k=K, vector=vector))
        found.append(seconds * 1000)
    return found


def time_call(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that an action took, and its result."""
    begun = time.perf_counter()
    result = action()
    return time.perf_counter() - begun, result
