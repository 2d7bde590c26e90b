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

from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.learning.subject import DROPPED, USED
from crabpath_retrievers.evaluation.speed.timing import percentiles, timed
from crabpath_retrievers.evaluation.streams.learners import Frozen, Learned, Ranked, ranked
from crabpath_retrievers.evaluation.streams.prequential import Course, follow
from crabpath_retrievers.evaluation.streams.signals import Signal
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.progress import bar
from crabpath_retrievers.seeds.embedder import Embedder

WINDOW = 500  # turns that are measured together
_BESIDE = 10  # the frozen twin answers every tenth question too
_MIB = 2**20
_PER = 1000  # turns of a slope

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
class Watched:
    """A learner whose every step is timed, beside its frozen twin.

    Attributes:
        learned: Who learns.
        frozen: The twin, on the same memory.
        embedder: Embeds questions, so that what that takes is known.
        folder: Where the memory is kept.
        size: Turns of a window.
        turns: Turns so far.
        windows: What was measured so far, one entry per full window.
    """

    learned: Learned
    frozen: Frozen
    embedder: Embedder
    folder: Path
    size: int = WINDOW
    turns: int = 0
    windows: list[dict[str, Any]] = field(default_factory=list)
    _times: dict[str, list[float]] = field(default_factory=dict)

    def rank(self, query: str, vector: Vector, k: int) -> list[Ranked]:
        """The learner's documents; every tenth time the twin is asked beside it."""
        if self.turns % _BESIDE == 0:
            self._compare(query, vector, k)
        found: list[Ranked] = self._timed(
            "retrieve_ms", partial(self.learned.rank, query, vector, k)
        )
        return found

    def _compare(self, query: str, vector: Vector, k: int) -> None:
        """Learner and twin, neither keeping a record, first one and then the other in turn."""
        asked = [("frozen_ms", self.frozen.rank), ("unrecorded_ms", self._unrecorded)]
        if self.turns // _BESIDE % 2:
            asked.reverse()
        self._timed("embed_ms", partial(self.embedder.query, query))
        for name, ask in asked:
            self._timed(name, partial(ask, query, vector, k))

    def _unrecorded(self, query: str, vector: Vector, k: int) -> list[Ranked]:
        one = self.learned
        answer = one.memory.retrieve(
            query,
            k=k,
            vector=vector,
            one_per_document=one.distinct,
            namespace=one.namespace,
            record=False,
        )
        return ranked(answer)

    def learn(self, vector: Vector, ranked: Sequence[Ranked], signal: Signal) -> None:
        """Record the feedback; a full window is closed."""
        self._timed("record_ms", partial(self.learned.learn, vector, ranked, signal))
        self.turns += 1
        if self.turns % self.size == 0:
            self.close_window()

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
        self.windows.append(window | measured_size(self.folder))

    def _timed(self, name: str, action: partial[Any]) -> Any:
        seconds, result = timed(action)
        self._times.setdefault(name, []).append(seconds * 1000)
        return result


def measured_size(folder: Path) -> dict[str, float]:
    """Resident memory of this process and size of all files in a folder, in MiB."""
    files = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    resident = psutil.Process().memory_info().rss
    return {"memory_mb": round(resident / _MIB, 1), "store_mb": round(files / _MIB, 1)}


def endured(
    dataset: Dataset, embeddings: Embeddings, k: int, turns: int, *, size: int = WINDOW
) -> Iterator[dict[str, Any]]:
    """A long stream with ``used`` feedback on a memory of its own, so that its size is its own.

    Args:
        dataset: Its questions come again and again, each time in a new order and with a fifth of
            their words left out.
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
            embedder = Embedder(_uncached(embeddings))
            learned, frozen = Learned(memory, dataset.split), Frozen(memory, dataset.split)
            watched = Watched(learned, frozen, embedder, folder, size)
            for part, course in _rounds(dataset, turns):
                known = len(watched.windows)
                follow("endurance", watched, part, embedder, USED, course, k)
                if watched.turns == turns:
                    watched.close_window()
                yield from watched.windows[known:]


def _rounds(dataset: Dataset, turns: int) -> Iterator[tuple[Dataset, Course]]:
    """The questions again and again; the last round may be short."""
    rounds = -(-turns // len(dataset.queries))
    for number in range(rounds):
        course = Course(seed=number, dropped=DROPPED)
        left = turns - number * len(dataset.queries)
        asked = dataset.first(left)
        texts = enumerate(asked.queries.items())
        reworded = {query: course.text(text, number + 1, place) for place, (query, text) in texts}
        yield replace(asked, queries=reworded), course


def _uncached(embeddings: Embeddings) -> Embeddings:
    """Reworded questions come once: kept in a cache, they would grow the memory that is watched."""
    under: Embeddings = getattr(embeddings, "underlying_embeddings", embeddings)
    return under


def slopes(windows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Growth per 1,000 turns by least squares, over all windows and over their second half.

    None where fewer than two windows have the figure.
    """
    parts = {"all": windows, "second half": windows[len(windows) // 2 :]}
    return {
        part: {name: _slope(own, path) for name, path in _FIGURES.items()}
        for part, own in parts.items()
    }


def _slope(windows: Sequence[Mapping[str, Any]], path: Sequence[str]) -> float | None:
    points = [(window["turns"], _at(window, path)) for window in windows if path[0] in window]
    if len(points) < 2:  # noqa: PLR2004  a line needs two points
        return None
    turns, values = np.array(points, dtype=np.float64).T
    return round(float(np.polyfit(turns, values, 1)[0] * _PER), 4)


def _at(window: Mapping[str, Any], path: Sequence[str]) -> float:
    found: Any = window
    for name in path:
        found = found[name]
    return float(found)
