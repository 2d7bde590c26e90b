"""Scaling: what a walk costs in memories of fifty to two thousand pages."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.company import (
    PAGE_COUNT,
    ask_rule,
    generate_company,
)
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_mean, conclude
from crabpath_lab.experiments.memory_setup import make_documents, open_memory
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import WalkSettings

SIZES = (50, 200, 500, 2000)
_QUESTIONS, _REPEATS = 8, 4
# Times as much as in the smallest memory.
_MAX_NODES_RATIO, _MAX_TIME_RATIO, _PAPER_TIME_RATIO = 1.5, 4.0, 19.5


def _run(embeddings: Embeddings, seed: int, sizes: Sequence[int] = SIZES) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = generate_company(sizes[-1], int(draws.integers(PAGE_COUNT)))
    titles = list(pages)
    asked = [
        ask_rule(str(title), pages)
        for title in draws.choice(titles[: sizes[0]], _QUESTIONS, replace=False)
    ]
    walks = list[tuple[float, float]]()
    with open_memory({}, embeddings) as memory:
        for before, size in pairwise((0, *sizes)):
            more = {name: pages[name] for name in titles[before:size]}
            memory.add_documents(make_documents(more, titles), split=False)
            walks.append(_measure_walk(memory, asked))
    nodes, times = (np.array(of) for of in zip(*walks, strict=True))
    of_size = {
        f"nodes visited, {size} pages": n for size, n in zip(sizes, nodes.tolist(), strict=True)
    }
    return SeedResult(
        {
            **of_size,
            "nodes visited, largest to smallest": float(nodes[-1] / nodes[0]),
            "time of a walk, largest to smallest": float(times[-1] / times[0]),
            "share of the budget of nodes, smallest": float(nodes[0] / WalkSettings().max_nodes),
            "growth of time with size": _growth_exponent(sizes, times.tolist()),
        },
        {
            "nodes visited": (nodes / nodes[0]).tolist(),
            "time of a walk": (times / times[0]).tolist(),
        },
    )


def _measure_walk(memory: CrabPath, asked: Sequence[str]) -> tuple[float, float]:
    """Measure nodes visited and milliseconds of a walk: fastest of several, mean over questions."""
    nodes, times = list[int](), list[float]()
    for text in asked:
        turns = [memory.retrieve(text, record=False).turn for _ in range(_REPEATS)]
        nodes.append(len(turns[0].visited))
        times.append(min(turn.latency_ms["walk"] for turn in turns))
    return float(np.mean(nodes)), float(np.mean(times))


def _growth_exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Fit the exponent of growth: 0 for constant time, 1 for time proportional to size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _judge(found: BySeed) -> ExperimentVerdict:
    nodes = found["nodes visited, largest to smallest"]
    times = found["time of a walk, largest to smallest"]
    reason = (
        f"with forty times the pages a walk visits {np.mean(nodes):.2f} times as many nodes and "
        f"takes {np.mean(times):.2f} times as long (the paper {_PAPER_TIME_RATIO}); its budget of "
        f"{WalkSettings().max_nodes} nodes bounds it"
    )
    held = (
        compare_mean(f"at most {_MAX_NODES_RATIO} times the nodes", nodes, most=_MAX_NODES_RATIO),
        compare_mean(f"at most {_PAPER_TIME_RATIO} times the time", times, most=_PAPER_TIME_RATIO),
    )
    quick = compare_mean(f"at most {_MAX_TIME_RATIO} times the time", times, most=_MAX_TIME_RATIO)
    return conclude(reason, held, (quick,))


EXPERIMENT = Experiment(
    name="scaling",
    title="Scaling",
    scene=(
        "One memory grows from 50 over 200 and 500 to 2,000 pages, each of which mentions two of "
        "those before it. The same eight questions are asked at every size, four times, of which "
        "the fastest walk counts. Times are given as ratios to the smallest memory, because they "
        "depend on the machine."
    ),
    paper=(
        "[OpenClawBrain] §4.11: 5 nodes fired from 50 to 2,000 nodes, .0962 → 1.8766 ms, 19.5 "
        "times as long"
    ),
    run=_run,
    verdict=_judge,
    across="size: 50, 200, 500 and 2,000 pages",
    up="ratio to 50 pages",
)
