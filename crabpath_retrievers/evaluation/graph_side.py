"""Opening time and memory of the graph store, without Chroma and embedder; run as a program."""

import json
import resource
import sys
import time

import numpy as np

from crabpath_retrievers.storage import GraphStore

_WALKS = 2000
_FRONTIER = 8


def main(folder: str) -> None:
    """Open the store, read many frontiers, print the cost."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    store = GraphStore(folder)
    opened = time.perf_counter() - begun
    clock = store.walk.clock("default")
    rng = np.random.default_rng(0)
    for _ in range(_WALKS):
        keys = rng.integers(1, 100_000, size=_FRONTIER).tolist()
        store.walk.outgoing(keys, clock)
        store.walk.heads((), keys)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {"open_s": round(opened, 3), "memory_mb": round((after - before) / 1024, 1)}
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
