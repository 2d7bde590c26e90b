"""Opening time and memory of the graph store, without Chroma and embedder; run as a program."""

import json
import sys
import time

import numpy as np
import psutil

from crabpath_retrievers.storage import GraphStore

_WALKS = 2000
_FRONTIER = 8


def main(folder: str) -> None:
    """Open the store, read many frontiers, print the cost."""
    process = psutil.Process()
    before = process.memory_info().rss
    begun = time.perf_counter()
    store = GraphStore(folder)
    opened = time.perf_counter() - begun
    clock = store.walk.get_clock("default")
    rng = np.random.default_rng(0)
    for _ in range(_WALKS):
        keys = rng.integers(1, 100_000, size=_FRONTIER).tolist()
        store.walk.get_outgoing_edges(keys, clock)
        store.walk.get_nodes((), keys)
    grown = process.memory_info().rss - before
    figures = {"open_s": round(opened, 3), "memory_mb": round(grown / 2**20, 1)}
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
