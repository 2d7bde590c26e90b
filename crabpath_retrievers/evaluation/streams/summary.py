"""The figures of a stream: passes, halves and checkpoints, each beside the frozen twin's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.scoring.measures import PerQuery, score_rankings
from crabpath_retrievers.evaluation.scoring.statistics import compare_paired, percentiles
from crabpath_retrievers.evaluation.streams.prequential import StreamPass

_CHECKPOINTS = 10  # of one pass


def score_pass(dataset: Dataset, done: StreamPass, ks: Sequence[int]) -> PerQuery:
    """Scores of one pass, in the order in which the questions were asked."""
    run = {query: [item.chunk.document for item in found] for query, found in done.found.items()}
    qrels = {query: dataset.qrels[query] for query in done.found}
    return score_rankings(
        qrels, {query: list(dict.fromkeys(ids)) for query, ids in run.items()}, ks
    )


def summarize_stream(
    own: Sequence[PerQuery], frozen: Sequence[PerQuery], done: Sequence[StreamPass], *, seed: int
) -> dict[str, Any]:
    """One learner's stream as a JSON-safe record.

    Args:
        own: Its scores, one entry per pass.
        frozen: Those of the frozen twin on the same stream.
        done: Its passes, for their times.
        seed: Of the resampling.

    Returns:
        ``epochs`` and ``frozen_epochs``: means per pass. ``second_half`` and
        ``frozen_second_half``: means over the second half of the first pass. ``checkpoints``:
        means of each tenth of every pass, both. ``differences``: learner minus frozen, paired,
        per pass and for the second half.
    """
    middle = len(next(iter(own[0].values()))) // 2
    second = (_slice_scores(own[0], middle, None), _slice_scores(frozen[0], middle, None))
    parts = {f"epoch {n}": pair for n, pair in enumerate(zip(own, frozen, strict=True), 1)}
    parts["second half"] = second
    return {
        "epochs": [_mean_scores(scores) for scores in own],
        "frozen_epochs": [_mean_scores(scores) for scores in frozen],
        "second_half": _mean_scores(second[0]),
        "frozen_second_half": _mean_scores(second[1]),
        "checkpoints": _mean_checkpoints(own, frozen),
        "differences": [
            {"part": part} | difference
            for part, pair in parts.items()
            for difference in _compare_metrics(*pair, seed)
        ],
        "rank_ms": percentiles([ms for one in done for ms in one.rank_ms]),
        "learn_ms": percentiles([ms for one in done for ms in one.learn_ms]),
    }


def _compare_metrics(a: PerQuery, b: PerQuery, seed: int) -> list[dict[str, Any]]:
    names = [name for name in a if name.startswith(("full@", "recall@"))]
    return [{"metric": name} | compare_paired(a[name], b[name], seed=seed) for name in names]


def _mean_checkpoints(own: Sequence[PerQuery], frozen: Sequence[PerQuery]) -> list[dict[str, Any]]:
    found = []
    asked = 0
    for mine, theirs in zip(own, frozen, strict=True):
        size = len(next(iter(mine.values())))
        ends = np.unique(np.linspace(0, size, _CHECKPOINTS + 1).astype(int))
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            parts = (
                _mean_scores(_slice_scores(mine, start, end)),
                _mean_scores(_slice_scores(theirs, start, end)),
            )
            found.append({"asked": asked + end, "learner": parts[0], "frozen": parts[1]})
        asked += size
    return found


def _slice_scores(scores: PerQuery, start: int, end: int | None) -> PerQuery:
    return {name: values[start:end] for name, values in scores.items()}


def _mean_scores(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(float(np.mean(values)), 4) for name, values in scores.items()}
