"""``make bench-regions``: what regions add to a query on a large store, and whether counts grow."""

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import sqlalchemy as sa

from benchmarks.speed.synthetic_store import fill_synthetic
from benchmarks.speed.timing import K, time_call
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.query import QueryOptions
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.scoring.statistics import percentiles
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.regions.models import RegionAdvice, RegionAdvisor
from crabpath_retrievers.regions.success import ANY_TASK, SuccessModel
from crabpath_retrievers.storage.schema import transitions
from crabpath_retrievers.vectors.embedder import load_default_embeddings, to_unit_vector

_NAMESPACE = "bench"
_WARM_UP = 20
_POINTS = 5
_ROUNDS = 3
_NOISE = 0.02  # per coordinate: the same question in other words, cosine about 0.93

Questions = Sequence[tuple[str, Vector]]


def measure_regions(
    dataset: Dataset, folder: Path, *, limit: int, nodes: int, turns: int
) -> dict[str, Any]:
    """All figures, as one JSON-safe record.

    Args:
        dataset: Its documents make both stores, its queries are asked.
        folder: For the stores.
        limit: Queries that are timed, and learned from before.
        nodes: Of the large store.
        turns: Turns that the small store learns from while its growth is watched.
    """
    embeddings = load_default_embeddings()
    with CrabPath.open(folder / "small", embeddings=embeddings) as small:
        small.add_documents(dataset.documents, split=False)
        asked = list(dataset.queries.values())[:limit]
        questions = [(text, small.embedder.query(text)) for text in asked]
        with CrabPath.open(folder / "large", embeddings=embeddings) as large:
            large.add_documents(dataset.documents[:1], split=False)
            fill_synthetic(large, small, dataset, nodes)
            for text, vector in questions:
                learn_from_turn(large, text, vector)
            report = {
                "nodes": large.info()["nodes"],
                "levels": {
                    level: large.store.regions.sizes()[level] for level in large.regions.levels()
                },
                "added_ms": time_region_steps(large, questions),
                "retrieve_ms": time_with_and_without(large, questions),
            }
        return {**report, "growth": measure_growth(small, questions, turns)}


def learn_from_turn(memory: CrabPath, text: str, vector: Vector) -> None:
    """Ask, and say that the first document was used."""
    answer = memory.retrieve(text, k=K, vector=vector, namespace=_NAMESPACE)
    used = [answer.documents[0].node.id]
    memory.record(Feedback(answer.turn.id, 1.0, used=used, namespace=_NAMESPACE))


def time_region_steps(memory: CrabPath, questions: Questions) -> dict[str, dict[str, float]]:
    """Milliseconds of what regions add to a query, and of its three parts."""
    settings = memory.settings.region
    regions = Regions(memory.store, settings)
    advisor = RegionAdvisor(memory.store, regions, settings)
    clock = memory.store.walk.get_clock(_NAMESPACE)
    found: dict[str, list[float]] = {name: [] for name in ("places", "counts", "scores", "all")}
    advisor.advice(questions[0][1], clock, None)  # reads the hubs, once
    for _, vector in questions:
        memory.store.flush()
        placing, places = time_call(partial(regions.places, vector, clock.hubs))
        reading, known = time_call(partial(memory.store.regions.get_transitions, clock.key, places))
        advice = RegionAdvice(places, SuccessModel(places, known, settings.prior_trials), ANY_TASK)
        scoring, _ = time_call(advice.list_tried_actions)
        together, _ = time_call(partial(_list_tried_actions, advisor, vector, clock))
        for name, seconds in zip(found, (placing, reading, scoring, together), strict=True):
            found[name].append(seconds * 1000)
    return {name: percentiles(times) for name, times in found.items()}


def _list_tried_actions(advisor: RegionAdvisor, vector: Vector, clock: Any) -> list[Any]:
    advice = advisor.advice(vector, clock, None)
    return [] if advice is None else advice.list_tried_actions()


def time_with_and_without(memory: CrabPath, questions: Questions) -> dict[str, Any]:
    """Milliseconds of a query with regions and without, embedding excluded, in turns.

    ``clock`` is what a caller waits, ``processor`` the time of the calling thread, which other
    programs disturb less.
    """
    settings = memory.settings.replace(learning=LearningSettings(regions=False))
    other = CrabPath(Services(memory.store, memory.index, memory.embedder, settings=settings))
    taken: dict[str, list[tuple[float, float]]] = {"on": [], "off": []}
    with closing(other):
        for number, (text, vector) in enumerate((*questions[:_WARM_UP], *[*questions] * _ROUNDS)):
            order = (("on", memory), ("off", other))
            for name, asked in order if number % 2 else reversed(order):
                memory.store.flush()
                busy = time.thread_time()
                options = QueryOptions(
                    k=K,
                    vector=vector,
                    namespace=_NAMESPACE,
                    record=False,
                )
                waited, _ = time_call(partial(asked.retrieve, text, **options))
                taken[name].append((waited * 1000, (time.thread_time() - busy) * 1000))
    first = min(_WARM_UP, len(questions))
    return {
        name: _compare_times(
            [row[column] for row in taken["on"][first:]],
            [row[column] for row in taken["off"][first:]],
        )
        for column, name in enumerate(("clock", "processor"))
    }


def _compare_times(on: Sequence[float], off: Sequence[float]) -> dict[str, Any]:
    return {
        "on": percentiles(on),
        "off": percentiles(off),
        "difference_p50": round(statistics.median(a - b for a, b in zip(on, off, strict=True)), 2),
        "ratio_of_medians": round(statistics.median(on) / statistics.median(off), 3),
    }


def measure_growth(memory: CrabPath, questions: Questions, turns: int) -> list[dict[str, float]]:
    """Counts and resident memory after each fifth of the turns, questions in ever new words.

    Returns:
        ``turns``; ``rows`` of counts; ``pairs`` of region and action among them; resident memory
        as ``resident_mb``.
    """
    process, points = psutil.Process(), []
    for number, (text, vector) in enumerate(_reworded_questions(questions, turns), 1):
        learn_from_turn(memory, text, vector)
        if number % max(1, turns // _POINTS) == 0:
            gc.collect()
            rows, pairs = _count_rows(memory)
            resident = round(process.memory_info().rss / 2**20, 1)
            points.append({"turns": number, "rows": rows, "pairs": pairs, "resident_mb": resident})
    return points


def _reworded_questions(questions: Questions, turns: int) -> Iterator[tuple[str, Vector]]:
    rng = np.random.default_rng(0)
    for number in range(turns):
        text, vector = questions[number % len(questions)]
        noise = rng.normal(0.0, _NOISE, size=vector.size).astype(np.float32)
        yield text, to_unit_vector(np.asarray(vector, dtype=np.float32) + noise)


def _count_rows(memory: CrabPath) -> tuple[int, int]:
    place = (
        sa.select(transitions.c.level, transitions.c.region, transitions.c.action)
        .distinct()
        .subquery()
    )
    with memory.store.open_reader() as connection:
        rows = connection.scalar(sa.select(sa.func.count()).select_from(transitions))
        pairs = connection.scalar(sa.select(sa.func.count()).select_from(place))
    return int(rows or 0), int(pairs or 0)
