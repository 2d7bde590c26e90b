"""The figures of a stream: its parts and checkpoints, each beside the frozen twin's."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.scoring.measures import PerQuery, score_rankings
from crabpath_retrievers.evaluation.scoring.statistics import (
    bootstrap_ratio,
    compare_paired,
    percentiles,
)
from crabpath_retrievers.evaluation.streams.prequential import (
    REPAIR_ARMS,
    StreamPart,
    StreamPass,
)

_CHECKPOINTS = 10  # of one pass


def score_pass(dataset: Dataset, done: StreamPass, ks: Sequence[int]) -> PerQuery:
    """Scores of one pass, in the order in which the questions were asked."""
    run = {query: [item.chunk.document for item in found] for query, found in done.found.items()}
    qrels = {query: done.gold.get(query, dataset.qrels[query]) for query in done.found}
    return score_rankings(
        qrels, {query: list(dict.fromkeys(ids)) for query, ids in run.items()}, ks
    )


def summarize_stream(
    own: Sequence[PerQuery],
    frozen: Sequence[PerQuery],
    parts: Sequence[StreamPart],
    done: Sequence[StreamPass],
    *,
    seed: int,
) -> dict[str, Any]:
    """One learner's stream as a JSON-safe record.

    ``epochs`` and ``frozen_epochs`` are means per pass, ``second_half`` and ``frozen_second_half``
    stand where the stream has that part, ``checkpoints`` are means of each tenth of every pass, and
    ``differences`` by part and measure: learner, frozen, and learner minus frozen, paired.
    """
    pairs = {part.name: (_take(own, part), _take(frozen, part)) for part in parts}
    halves = pairs.get("second half", ())
    return {
        "epochs": [_mean_scores(scores) for scores in own],
        "frozen_epochs": [_mean_scores(scores) for scores in frozen],
        **{
            name: _mean_scores(scores)
            for name, scores in zip(("second_half", "frozen_second_half"), halves, strict=False)
        },
        "checkpoints": _mean_checkpoints(own, frozen),
        "differences": [
            {"part": part, "metric": name, "learner": _mean(mine), "frozen": _mean(theirs)}
            | compare_paired(mine, theirs, seed=seed)
            for part, (own_part, frozen_part) in pairs.items()
            for name, mine, theirs in _told_metrics(own_part, frozen_part)
        ],
        "rank_ms": percentiles([ms for one in done for ms in one.rank_ms]),
        "learn_ms": percentiles([ms for one in done for ms in one.learn_ms]),
    }


def summarize_repair(
    arms: Mapping[str, Sequence[PerQuery]], parts: Sequence[StreamPart], *, seed: int
) -> list[dict[str, Any]]:
    """How much of what wrong feedback cost is won back once it is corrected.

    By part after the correction and by measure: the mean of each of ``REPAIR_ARMS``, and the net
    recovery, (repaired - wrong) / (clean - wrong), with its 95 % bootstrap interval over questions;
    None where nothing was lost.
    """
    rows = []
    for part in parts:
        taken = [_take(arms[arm], part) for arm in REPAIR_ARMS]
        for name, clean, wrong, repaired in _told_metrics(*taken) if part.epoch else ():
            gained, lost = np.subtract(repaired, wrong), np.subtract(clean, wrong)
            means = zip(REPAIR_ARMS, map(_mean, (clean, wrong, repaired)), strict=True)
            recovery, ci95 = bootstrap_ratio(gained, lost, seed=seed)
            rows.append(
                {"part": part.name, "metric": name, **dict(means)}
                | {"recovery": recovery, "ci95": ci95}
            )
    return rows


def _take(passes: Sequence[PerQuery], part: StreamPart) -> PerQuery:
    """The scores of one part."""
    scores = passes[part.epoch]
    return {name: [values[place] for place in part.places] for name, values in scores.items()}


def _told_metrics(*scores: PerQuery) -> list[tuple[Any, ...]]:
    """Name and values of the measures that are reported, of several runs."""
    names = [name for name in scores[0] if name.startswith(("full@", "recall@"))]
    return [(name, *(one[name] for one in scores)) for name in names]


def _mean_checkpoints(own: Sequence[PerQuery], frozen: Sequence[PerQuery]) -> list[dict[str, Any]]:
    found = []
    asked = 0
    for epoch, mine in enumerate(own):
        size = len(next(iter(mine.values())))
        ends = np.unique(np.linspace(0, size, _CHECKPOINTS + 1).astype(int)).tolist()
        for start, end in pairwise(ends):
            part = StreamPart("", epoch, range(start, end))
            means = [_mean_scores(_take(scores, part)) for scores in (own, frozen)]
            found.append({"asked": asked + end, "learner": means[0], "frozen": means[1]})
        asked += size
    return found


def _mean_scores(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: _mean(values) for name, values in scores.items()}


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 4)
