"""``crabpath eval``: a data set, methods, figures."""

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings

from crabpath_retrievers.evaluation.chat_models import model_of
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.embedding import embedder
from crabpath_retrievers.evaluation.methods import CHUNKS_PER_DOCUMENT, Found, chosen
from crabpath_retrievers.evaluation.methods.routed import routed
from crabpath_retrievers.evaluation.plan import LEARNERS, Plan
from crabpath_retrievers.evaluation.results import by_document, comparisons, figures
from crabpath_retrievers.evaluation.run_methods import Run, Task, ask, tasks, vectors
from crabpath_retrievers.evaluation.scoring.chunk_level import measured_chunks
from crabpath_retrievers.evaluation.scoring.measures import DEPTH, PerQuery, measured
from crabpath_retrievers.evaluation.streams.prequential import Course
from crabpath_retrievers.evaluation.streams.simulated_feedback import Judge
from crabpath_retrievers.evaluation.streams.stream import Stream, Streamed

_MIB = 1024 * 1024
_READ = 5


def evaluate(plan: Plan) -> dict[str, Any]:
    """Measure every method on the same questions, corpus, chunks, embedder and depth.

    Returns:
        A JSON-safe record: ``dataset``, ``embedding``, ``methods``, ``comparisons``, and what
        the run itself cost.

    Raises:
        InvalidInputError: The data or the plan cannot be used.
    """
    begun = time.perf_counter()
    asked_once = [name for name in plan.methods if name not in LEARNERS]
    methods = chosen(asked_once) if asked_once or not plan.stream else {}
    if plan.router is not None:
        methods["routed"] = routed(model_of(plan.router), plan.prices)
    dataset = plan.load()
    embeddings = embedder(plan.embedding, plan.cache)
    asked = vectors(dataset.queries, embeddings)
    deep = depth(plan, dataset)
    runs = {
        name: ask(name, method, _tasks(plan, dataset, embeddings), asked, deep)
        for name, method in methods.items()
    }
    streams = _stream(plan, dataset, embeddings)
    found = judged(plan, dataset, runs | {name: one.run for name, one in streams.items()})
    for name, one in streams.items():
        found["methods"][name]["stream"] = one.figures
    return {
        "dataset": described(plan, dataset),
        "embedding": plan.embedding,
        **found,
        "wall_s": round(time.perf_counter() - begun, 1),
        "peak_memory_mb": _peak_memory_mb(),
    }


def _stream(plan: Plan, dataset: Dataset, embeddings: Embeddings) -> dict[str, Streamed]:
    """What each learner answered in its stream; nothing without one."""
    learners = tuple(name for name in plan.methods if name in LEARNERS)
    if not learners:
        return {}
    judge = Judge(plan.feedback, plan.noise, needed=_needed(plan))
    course = Course(plan.epochs, plan.seed or 0, plan.dropped)
    return Stream(learners, judge, course, plan.ks).run(dataset, embeddings)


def _needed(plan: Plan) -> int:
    """Documents that a chain reads: five, or as many as are asked for."""
    return min((k for k in plan.ks if k >= _READ), default=max(plan.ks))


def _tasks(plan: Plan, dataset: Dataset, embeddings: Embeddings) -> Iterator[Task]:
    closed, distinct = plan.setting == "closed", plan.level == "document" and dataset.split
    return tasks(dataset, embeddings, closed=closed, distinct=distinct)


def depth(plan: Plan, dataset: Dataset) -> int:
    """Chunks that each method is asked for, the same for all."""
    if plan.level == "chunk":
        return DEPTH
    return max(*plan.ks, DEPTH) * (CHUNKS_PER_DOCUMENT if dataset.split else 1)


def described(plan: Plan, dataset: Dataset) -> dict[str, Any]:
    """What was asked of what."""
    unmapped = sorted({gold for lost in dataset.unmapped_gold.values() for gold in lost})
    return {
        "name": plan.dataset,
        "queries": len(dataset.queries),
        "documents": len(dataset.documents),
        "file": plan.data.resolve().name,
        "setting": plan.setting,
        "level": plan.level,
        "limit": plan.limit,
        "seed": plan.seed,
        "stream": _described_stream(plan),
        "router": plan.router,
        "questions_left_out": dataset.left_out,
        "unmapped_gold": sum(map(len, dataset.unmapped_gold.values())),
        "unmapped_gold_ids": unmapped,
    }


def _described_stream(plan: Plan) -> dict[str, Any] | None:
    if plan.stream is None:
        return None
    names = ("feedback", "noise", "epochs", "dropped")
    return {"kind": plan.stream} | {name: getattr(plan, name) for name in names}


def judged(plan: Plan, dataset: Dataset, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Figures and comparisons: the only place where answers meet labels."""
    seed = plan.seed or 0
    scored: dict[str, PerQuery] = {}
    methods: dict[str, Any] = {}
    for name, run in runs.items():
        scored[name], returned = _scored(plan, dataset, run)
        methods[name] = figures(scored[name], run, returned, seed=seed)
    metrics = [f"{metric}@{k}" for k in plan.ks for metric in ("full", "recall")]
    if plan.level == "chunk":
        metrics = list(next(iter(scored.values())))
    return {"methods": methods, "comparisons": comparisons(scored, metrics, seed=seed)}


def _scored(
    plan: Plan, dataset: Dataset, run: Run
) -> tuple[PerQuery, Mapping[str, Sequence[Found]]]:
    """Scores per query, and what a caller would get."""
    if plan.level == "chunk":
        texts = {query: [chunk.text for chunk in found] for query, found in run.found.items()}
        return measured_chunks(dataset.facts, texts), run.found
    documents = {query: by_document(found) for query, found in run.found.items()}
    ranked = {query: [chunk.document for chunk in found] for query, found in documents.items()}
    returned = {query: found[: max(plan.ks)] for query, found in documents.items()}
    return measured(dataset.qrels, ranked, plan.ks), returned


def _peak_memory_mb() -> float:
    """Largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes, but bytes on macOS.
    return round(peak / (_MIB if sys.platform == "darwin" else 1024), 1)
