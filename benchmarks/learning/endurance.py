"""Whether a memory that goes on learning stays quick and small."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
from langchain_core.embeddings import Embeddings

from benchmarks.learning.paired_learners import DROPPED, USED_FEEDBACK
from benchmarks.speed.timing import time_call
from crabpath_lab.datasets import Dataset
from crabpath_lab.statistics import percentiles
from crabpath_lab.streams.learners import (
    CrabPathLearner,
    FrozenLearner,
    RankedDocument,
    TaughtAnswer,
    ranked_documents,
)
from crabpath_lab.streams.prequential import StreamSchedule, run_stream
from crabpath_lab.streams.simulated_feedback import SimulatedFeedback
from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.vectors.embedder import Embedder

WINDOW = 500  # turns that are measured together
_TWIN_INTERVAL = 10  # the frozen twin answers every tenth question too
_MIB = 2**20
_SLOPE_TURNS = 1000  # turns of a slope

_FIGURES: Mapping[str, Sequence[str]] = {
    "retrieve_ms_p50": ("retrieve_ms", "p50"),
    "retrieve_ms_p95": ("retrieve_ms", "p95"),
    "record_ms_p50": ("record_ms", "p50"),
    "record_ms_p95": ("record_ms", "p95"),
    "unrecorded_ms_p50": ("unrecorded_ms", "p50"),
    "frozen_ms_p50": ("frozen_ms", "p50"),
    "embed_ms_p50": ("embed_ms", "p50"),
    "ratio": ("ratio",),
    "whole_ratio": ("whole_ratio",),
    "memory_mb": ("memory_mb",),
    "store_mb": ("store_mb",),
}


@dataclass(slots=True)
class TimedLearner:
    """A learner with every step timed, beside its frozen twin.

    Attributes:
        learned: Who learns.
        frozen: The twin, on the same memory.
        embedder: Embeds questions, so that what that takes is known.
        folder: Where the memory is kept.
        size: Turns of a window.
        turns: Turns so far.
        windows: What was measured so far, one entry per full window.
    """

    learned: CrabPathLearner
    frozen: FrozenLearner
    embedder: Embedder
    folder: Path
    size: int = WINDOW
    turns: int = 0
    windows: list[dict[str, Any]] = field(default_factory=list)
    _times: dict[str, list[float]] = field(default_factory=dict)

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """The learner's documents; every tenth time the twin is asked beside it."""
        if self.turns % _TWIN_INTERVAL == 0:
            self._compare(query, vector, k)
        found: list[RankedDocument] = self._time_step(
            "retrieve_ms", partial(self.learned.rank, query, vector, k)
        )
        return found

    def _compare(self, query: str, vector: Vector, k: int) -> None:
        """Learner and twin, neither keeping a record, first one and then the other in turn."""
        asked = [("frozen_ms", self.frozen.rank), ("unrecorded_ms", self._rank_unrecorded)]
        if self.turns // _TWIN_INTERVAL % 2:
            asked.reverse()
        self._time_step("embed_ms", partial(self.embedder.query, query))
        for name, ask in asked:
            self._time_step(name, partial(ask, query, vector, k))

    def _rank_unrecorded(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        one = self.learned
        answer = one.memory.retrieve(
            query,
            k=k,
            vector=vector,
            one_per_document=one.distinct,
            namespace=one.namespace,
            record=False,
        )
        return ranked_documents(answer)

    def learn(self, lesson: TaughtAnswer) -> None:
        """Record the feedback; a full window is closed."""
        self._time_step("record_ms", partial(self.learned.learn, lesson))
        self.turns += 1
        if self.turns % self.size == 0:
            self.close_window()

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Correct the feedback; not timed."""
        self.learned.correct(lesson, right)

    def close_window(self) -> None:
        """Sum up what came since the last window; nothing when nothing came."""
        if not self._times:
            return
        times = {name: percentiles(found) for name, found in sorted(self._times.items())}
        window: dict[str, Any] = {"turns": self.turns, **times}
        if "frozen_ms" in times:
            own, twin, first = (
                times[name]["p50"] for name in ("unrecorded_ms", "frozen_ms", "embed_ms")
            )
            window["ratio"] = round(own / max(twin, 0.01), 3)
            window["whole_ratio"] = round((first + own) / max(first + twin, 0.01), 3)
        self._times.clear()
        self.windows.append(window | measure_size(self.folder))

    def _time_step(self, name: str, action: partial[Any]) -> Any:
        seconds, result = time_call(action)
        self._times.setdefault(name, []).append(seconds * 1000)
        return result


def measure_size(folder: Path) -> dict[str, float]:
    """Resident memory of this process and size of all files in a folder, in MiB."""
    files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    resident = psutil.Process().memory_info().rss
    return {"memory_mb": round(resident / _MIB, 1), "store_mb": round(files / _MIB, 1)}


def run_endurance(
    dataset: Dataset, embeddings: Embeddings, k: int, turns: int, *, size: int = WINDOW
) -> Iterator[dict[str, Any]]:
    """A long stream with ``used`` feedback on a memory of its own, so that its size is its own.

    Args:
        dataset: Its questions are repeated, each time in a new order and with 20 % of their words
            left out.
        embeddings: The embedder; its cache holds documents only.
        k: Documents per question.
        turns: Length of the stream.
        size: Turns of a window.

    Yields:
        Windows: ``turns`` so far; ``retrieve_ms`` and ``record_ms`` (p50, p95, embedding
        excluded); every tenth time ``unrecorded_ms`` and ``frozen_ms``, both without keeping a
        record of the turn, and ``embed_ms``; ``ratio`` of the first two medians, ``whole_ratio``
        with that of the embedding on both sides; ``memory_mb`` resident and ``store_mb`` on disk.
    """
    with TemporaryDirectory(prefix="crabpath-eval-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with CrabPath.open(folder, embeddings=embeddings) as memory:
            memory.add_documents(dataset.documents, split=dataset.split, progress=bar)
            embedder = Embedder(_without_cache(embeddings))
            learned, frozen = (
                CrabPathLearner(memory, dataset.split),
                FrozenLearner(memory, dataset.split),
            )
            watched = TimedLearner(learned, frozen, embedder, folder, size)
            for part, schedule in _split_rounds(dataset, turns):
                known = len(watched.windows)
                run_stream("endurance", watched, part, embedder, USED_FEEDBACK, schedule, k)
                if watched.turns == turns:
                    watched.close_window()
                yield from watched.windows[known:]


def _split_rounds(dataset: Dataset, turns: int) -> Iterator[tuple[Dataset, StreamSchedule]]:
    """The questions again and again; the last round may be short."""
    rounds = -(-turns // len(dataset.queries))
    for number in range(rounds):
        schedule = StreamSchedule(seed=number, dropped=DROPPED)
        left = turns - number * len(dataset.queries)
        asked = dataset.head(left)
        texts = enumerate(asked.queries.items())
        reworded = {
            query: schedule.reword(text, number + 1, place) for place, (query, text) in texts
        }
        yield replace(asked, queries=reworded), schedule


def _without_cache(embeddings: Embeddings) -> Embeddings:
    """Reworded questions come once: kept in a cache, they would grow the memory that is watched."""
    under: Embeddings = getattr(embeddings, "underlying_embeddings", embeddings)
    return under


def fit_slopes(windows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Growth per 1,000 turns by least squares, over all windows and over their second half.

    None where fewer than two windows have the figure.
    """
    parts = {"all": windows, "second half": windows[len(windows) // 2 :]}
    return {
        part: {name: _fit_slope(own, path) for name, path in _FIGURES.items()}
        for part, own in parts.items()
    }


def _fit_slope(windows: Sequence[Mapping[str, Any]], path: Sequence[str]) -> float | None:
    points = [
        (window["turns"], _read_figure(window, path)) for window in windows if path[0] in window
    ]
    if len(points) < 2:  # noqa: PLR2004  a line needs two points
        return None
    turns, values = np.array(points, dtype=np.float64).T
    return round(float(np.polyfit(turns, values, 1)[0] * _SLOPE_TURNS), 4)


def _read_figure(window: Mapping[str, Any], path: Sequence[str]) -> float:
    found: Any = window
    for name in path:
        found = found[name]
    return float(found)
