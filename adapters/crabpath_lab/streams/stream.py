"""Run a stream for every learner on one memory, and sum it up beside the frozen twin."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_lab.loading import explain_failure, import_named
from crabpath_lab.methods import RetrievedChunk
from crabpath_lab.run_methods import MethodRun
from crabpath_lab.scoring.measures import PerQuery, score_rankings
from crabpath_lab.scratch import open_scratch
from crabpath_lab.statistics import (
    bootstrap_ratio,
    compare_paired,
    percentiles,
)
from crabpath_lab.streams.learners import (
    NAMESPACE,
    BetaCounts,
    CrabPathLearner,
    FrozenLearner,
    MovingAverage,
    NearestNeighbours,
    QueryCache,
    StreamLearner,
)
from crabpath_lab.streams.off_policy import estimate_greedy_uses
from crabpath_lab.streams.prequential import (
    REPAIR_ARMS,
    StreamPart,
    StreamPass,
    StreamSchedule,
    run_stream,
)
from crabpath_lab.streams.simulated_feedback import FeedbackSimulator
from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.crabpath import CrabPath

FROZEN = "cold"
_MUST_BE = (
    "a StreamLearner: called with the frozen twin, with rank, which returns a list of "
    "RankedDocument, learn and correct"
)
_CHECKPOINTS = 10  # of one pass
LEARNER_FACTORIES: Mapping[str, Callable[[FrozenLearner], StreamLearner]] = MappingProxyType(
    {
        "learned": lambda frozen: CrabPathLearner(frozen.memory, frozen.distinct),
        "knn": NearestNeighbours,
        "beta": BetaCounts,
        "average": MovingAverage,
        "cache": QueryCache,
    }
)


def find_learner(name: str) -> Callable[[FrozenLearner], StreamLearner]:
    """Find the maker of a learner by its name, or by ``module:attribute``."""
    made: Callable[[FrozenLearner], StreamLearner] = import_named(
        name, LEARNER_FACTORIES, "learner"
    )
    return made


class StreamResult(NamedTuple):
    """Answers of a learner, one per question, and the figures of the whole stream."""

    run: MethodRun
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """Configuration of a stream: learners, feedback, schedule, cut-offs, documents shown."""

    learners: tuple[str, ...]
    simulator: FeedbackSimulator
    schedule: StreamSchedule
    ks: tuple[int, ...]
    shown: int

    def run(
        self, dataset: Dataset, embeddings: Embeddings, settings: Settings | None = None
    ) -> dict[str, StreamResult]:
        """Run the stream; figures by learner, beside those of the frozen twin on the same order."""
        parts, seed = self.schedule.list_parts(dataset), self.schedule.seed
        arms = REPAIR_ARMS if self.schedule.kind == "repair" else REPAIR_ARMS[:1]
        with open_scratch(embeddings=embeddings, settings=settings) as memory:
            memory.add_documents(dataset.documents, split=dataset.split, progress=bar)
            frozen = self._run_passes(FROZEN, arms[0], memory, dataset)
            twin = [score_pass(dataset, one, self.ks) for one in frozen]
            figures = {}
            for name in self.learners:
                scores = {}
                for arm in arms:  # the last one is reported
                    done = self._run_passes(name, arm, memory, dataset)
                    scores[arm] = [score_pass(dataset, one, self.ks) for one in done]
                summary = summarize_stream(scores[arms[-1]], twin, parts, done, seed=seed)
                if len(arms) > 1:
                    summary["repair"] = summarize_repair(scores, parts, seed=seed)
                logged = [turn for one in done for turn in one.logged]
                summary["off_policy"] = estimate_greedy_uses(logged, seed=seed)
                figures[name] = StreamResult(_method_run(done, dataset), summary)
        return figures

    def _run_passes(
        self, name: str, arm: str, memory: CrabPath, dataset: Dataset
    ) -> list[StreamPass]:
        """Run the passes of a new learner."""
        memory.forget(namespace=NAMESPACE)
        frozen = FrozenLearner(memory, dataset.split)
        simulator = replace(self.simulator, chunks=_find_first_chunks(memory, dataset))
        with explain_failure("learner", name, _MUST_BE):
            return run_stream(
                name,
                frozen if name == FROZEN else find_learner(name)(frozen),
                dataset,
                memory.embedder,
                simulator,
                replace(self.schedule, arm=arm),
                self.shown,
            )


def _find_first_chunks(memory: CrabPath, dataset: Dataset) -> dict[str, str]:
    """Map ids of documents to ids of their first chunks."""
    documents = [document.id for document in dataset.documents if document.id]
    chunks = memory.store.catalog.find_chunks(documents=documents)
    return {c.document: c.id for c in sorted(chunks, key=lambda c: -c.position)}


def _method_run(done: list[StreamPass], dataset: Dataset) -> MethodRun:
    """Collect each question's first answer, or that after a correction, in the data's order."""
    later = len(done[0].found) < len(dataset.queries)
    answers = {q: f for one in (done if later else done[::-1]) for q, f in one.found.items()}
    found = {
        query: [RetrievedChunk(item.chunk.document, item.text) for item in answers[query]]
        for query in dataset.queries
    }
    return MethodRun(found, done[0].rank_ms, 0.0)


def score_pass(dataset: Dataset, done: StreamPass, ks: Sequence[int]) -> PerQuery:
    """Score one pass, in the order in which the questions were asked."""
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
    """Summarise one learner's stream as a JSON-safe record.

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
            for name, mine, theirs in _select_metrics(own_part, frozen_part)
        ],
        "rank_ms": percentiles([ms for one in done for ms in one.rank_ms]),
        "learn_ms": percentiles([ms for one in done for ms in one.learn_ms]),
    }


def summarize_repair(
    arms: Mapping[str, Sequence[PerQuery]], parts: Sequence[StreamPart], *, seed: int
) -> list[dict[str, Any]]:
    """Compute the share of the loss by wrong feedback that its correction wins back.

    By part after the correction and by measure: the mean of each of ``REPAIR_ARMS``, and the net
    recovery, (repaired - wrong) / (clean - wrong), with its 95 % bootstrap interval over questions;
    None where nothing was lost.
    """
    rows = []
    for part in parts:
        taken = [_take(arms[arm], part) for arm in REPAIR_ARMS]
        for name, clean, wrong, repaired in _select_metrics(*taken) if part.epoch else ():
            gained, lost = np.subtract(repaired, wrong), np.subtract(clean, wrong)
            means = zip(REPAIR_ARMS, map(_mean, (clean, wrong, repaired)), strict=True)
            recovery, ci95 = bootstrap_ratio(gained, lost, seed=seed)
            rows.append(
                {"part": part.name, "metric": name, **dict(means)}
                | {"recovery": recovery, "ci95": ci95}
            )
    return rows


def _take(passes: Sequence[PerQuery], part: StreamPart) -> PerQuery:
    """Select the scores of one part."""
    scores = passes[part.epoch]
    return {name: [values[place] for place in part.places] for name, values in scores.items()}


def _select_metrics(*scores: PerQuery) -> list[tuple[Any, ...]]:
    """Select name and values of the measures that are reported, of several runs."""
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
