"""``make bench-maintenance``: how long maintenance of a large memory takes, beside queries."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.clock import advance_clock
from benchmarks.speed.synthetic_store import fill_synthetic
from benchmarks.speed.timing import K, time_call
from crabpath_lab.datasets.sample import load_sample
from crabpath_lab.statistics import percentiles
from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.changes import AdjustWeights, WeightDelta
from crabpath_retrievers.core.records import EdgeKind, Turn, Vector

_NAMESPACE = "bench"
_BATCH = 4000
_DECAY_NATS = 2.0  # nats since the weights were learned: a weight of .3 has .04 left of it
_COMMAND = (sys.executable, "-m", "crabpath_retrievers", "maintain", "--json", "--store")

Query = Callable[[], object]


def measure_maintenance(folder: Path, *, nodes: int, learned: int, turns: int) -> dict[str, Any]:
    """Fill a memory; maintain it beside queries; kill and resume it on a copy.

    Args:
        folder: For the memories.
        nodes: Document chunks.
        learned: Weights of one namespace, most of which have faded.
        turns: Turns on record.

    Returns:
        A JSON-safe record: ``query_ms`` alone and beside, the ``p95_ratio``, ``maintained_s``,
        ``steps``; ``resumed``: what is left after a kill and the next run, beside ``left``.
    """
    whole, copy = folder / "whole", folder / "copy"
    building, queries = time_call(partial(build_memory, whole, nodes, learned, turns))
    shutil.copytree(whole, copy)
    with CrabPath.open(whole) as memory:
        ask = _make_query(memory, queries)
        alone = [time_call(ask)[0] for _ in range(len(queries))]
        taken, beside, steps = _maintain_beside(whole, ask)
    left = _memory_size(whole)
    return {
        "nodes": nodes,
        "learned_weights": learned,
        "turns": turns,
        "built_s": round(building, 1),
        "maintained_s": round(taken, 1),
        "steps": steps,
        "query_ms": {
            "alone": _summarize(alone),
            "beside": _summarize(beside),
            "asked": len(beside),
        },
        "p95_ratio": round(_summarize(beside)["p95"] / _summarize(alone)["p95"], 2),
        "left": left,
        "resumed": _kill_and_resume(copy, taken / 3),
    }


def build_memory(folder: Path, nodes: int, learned: int, turns: int) -> list[tuple[str, Vector]]:
    """Passages many times over with noise, weights that have faded, and records of turns.

    Returns:
        Questions with their vectors.
    """
    dataset = load_sample()
    with CrabPath.open() as small, CrabPath.open(folder) as memory:
        small.add_documents(dataset.documents, split=False, progress=bar)
        memory.add_documents(dataset.documents[:1], split=False)
        fill_synthetic(memory, small, dataset, nodes)
        queries = [(text, small.embedder.query(text)) for text in dataset.queries.values()]
        _learn(memory, learned)
        text, vector = queries[0]
        turn = memory.retrieve(text, k=K, vector=vector, namespace=_NAMESPACE).turn
        _record_turns(memory, turn, turns)
    return queries


def _learn(memory: CrabPath, learned: int) -> None:
    rng = np.random.default_rng(0)
    keys = [node.key for block in memory.store.regions.iterate_nodes() for node in block]
    ends = rng.choice(len(keys), size=(learned, 2)).tolist()
    pairs = sorted({(keys[a], keys[b]) for a, b in ends if a != b})
    weights = rng.uniform(0.1, 0.9, size=len(pairs)).tolist()
    moves = [
        WeightDelta(a, b, EdgeKind.CO_USED, weight)
        for (a, b), weight in zip(pairs, weights, strict=True)
    ]
    for begin in range(0, len(moves), _BATCH):
        memory.store.apply([AdjustWeights(_NAMESPACE, tuple(moves[begin : begin + _BATCH]))])
    memory.store.write(advance_clock, _NAMESPACE, exponent=_DECAY_NATS)


def _record_turns(memory: CrabPath, turn: Turn, turns: int) -> None:
    for number in range(turns):
        memory.store.record(replace(turn, id=f"turn {number}"))
    memory.store.flush()


def _make_query(memory: CrabPath, queries: Sequence[tuple[str, Vector]]) -> Query:
    """Asks one query after the other, round and round."""
    place = 0

    def ask() -> object:
        nonlocal place
        text, vector = queries[place % len(queries)]
        place += 1
        return memory.retrieve(text, k=K, vector=vector, namespace=_NAMESPACE)

    return ask


def _maintain_beside(folder: Path, ask: Query) -> tuple[float, list[float], list[dict[str, Any]]]:
    """Seconds that ``crabpath maintain`` takes beside, those of the queries, and its report."""
    begun, seconds = time.perf_counter(), list[float]()
    with subprocess.Popen(  # noqa: S603  our own interpreter and module
        [*_COMMAND, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            seconds.append(time_call(ask)[0])
        output = process.stdout.read() if process.stdout else ""
    taken = time.perf_counter() - begun
    if process.returncode:
        msg = f"crabpath maintain failed with {process.returncode}"
        raise RuntimeError(msg)
    return taken, seconds, json.loads(output)["steps"]


def _kill_and_resume(folder: Path, after: float) -> dict[str, Any]:
    """What is left when a run is killed after some seconds and another one finishes."""
    with subprocess.Popen(  # noqa: S603  our own interpreter and module
        [*_COMMAND, str(folder)], stdout=subprocess.DEVNULL
    ) as process:
        time.sleep(after)
        process.kill()
    subprocess.run(  # noqa: S603  our own interpreter and module
        [*_COMMAND, str(folder)], check=True, stdout=subprocess.DEVNULL
    )
    return _memory_size(folder)


def _memory_size(folder: Path) -> dict[str, Any]:
    with CrabPath.open(folder) as memory:
        facts = memory.info()
    return {name: facts[name] for name in ("nodes", "edges", "learned_weights")}


def _summarize(seconds: Sequence[float]) -> dict[str, float]:
    return percentiles([1000 * one for one in seconds])
