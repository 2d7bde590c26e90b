"""Evaluate methods on one data set."""

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_lab.embedding import cached_embedder
from crabpath_lab.methods import (
    CHUNKS_PER_DOCUMENT,
    RetrievedChunk,
    select_methods,
)
from crabpath_lab.methods.reranked import load_reranker, make_reranked
from crabpath_lab.methods.routed import make_routed
from crabpath_lab.plan import LEARNER_NAMES, EvaluationPlan
from crabpath_lab.results import compare_methods, first_chunks, summarize_run
from crabpath_lab.run_methods import (
    CorpusQuestions,
    MethodRun,
    embed_questions,
    prepare_questions,
    run_method,
)
from crabpath_lab.scoring.chunk_level import score_chunks
from crabpath_lab.scoring.measures import DEPTH, PerQuery, score_rankings
from crabpath_lab.simulated_model import load_chat_model
from crabpath_lab.statistics import measure_calibration
from crabpath_lab.streams.prequential import StreamSchedule
from crabpath_lab.streams.simulated_feedback import FeedbackSimulator
from crabpath_lab.streams.stream import Stream, StreamResult, find_learner
from crabpath_retrievers.config import RankSettings, SeedSettings, Settings

_MIB = 1024 * 1024
_READ = 5
_EXPLORED = 50  # hits of each search among which a stream explores
_DESCRIBED = ("setting", "level", "limit", "seed", "router", "reranker")


def evaluate(plan: EvaluationPlan) -> dict[str, Any]:
    """Measure every method on the same questions, corpus, chunks, embedder and depth.

    The record is JSON-safe: ``dataset``, ``embedding``, ``methods``, ``comparisons``, and what the
    run itself cost. Data or a plan that cannot be used raise InvalidInputError.
    """
    begun = time.perf_counter()
    asked_once = [name for name in plan.methods if name not in LEARNER_NAMES]
    for learner in plan.list_learners():  # one that cannot be had is refused before all else
        find_learner(learner)
    methods = select_methods(asked_once) if asked_once or not plan.stream else {}
    if plan.router is not None:
        methods["routed"] = make_routed(load_chat_model(plan.router), plan.prices)
    if plan.reranker is not None:
        methods |= make_reranked(load_reranker(plan.reranker))
    dataset = plan.load()
    embeddings = cached_embedder(plan.embedding, plan.cache)
    asked = embed_questions(dataset.queries, embeddings)
    deep = retrieval_depth(plan, dataset)
    runs = {
        name: run_method(name, method, _prepare_questions(plan, dataset, embeddings), asked, deep)
        for name, method in methods.items()
    }
    streams = _run_streams(plan, dataset, embeddings)
    if streams:
        dataset = replace(dataset, qrels=_make_schedule(plan).judge(dataset))
    found = score_runs(plan, dataset, runs | {name: one.run for name, one in streams.items()})
    for name, one in streams.items():
        found["methods"][name]["stream"] = one.figures
    return {
        "dataset": describe_run(plan, dataset),
        "embedding": plan.embedding,
        **found,
        "wall_s": round(time.perf_counter() - begun, 1),
        "peak_memory_mb": _peak_memory_mb(),
    }


def _run_streams(
    plan: EvaluationPlan, dataset: Dataset, embeddings: Embeddings
) -> dict[str, StreamResult]:
    """Run the learners of the plan on a stream; an empty result without learners."""
    learners = plan.list_learners()
    if not learners:
        return {}
    # A simulated chain reads five documents, or as many as the largest cut-off below that.
    read = min((k for k in plan.ks if k >= _READ), default=max(plan.ks))
    simulator = FeedbackSimulator(plan.feedback, plan.noise, read)
    shown = plan.shown or max(plan.ks)
    stream = Stream(learners, simulator, _make_schedule(plan), plan.ks, shown)
    explores = RankSettings(explored_share=plan.explored), SeedSettings(hits_per_engine=_EXPLORED)
    settings = Settings(rank=explores[0], seeds=explores[1]) if plan.explored else Settings()
    passive = {"passive_rate": plan.passive_rate, "skip_penalty": plan.skip_penalty}
    learning = settings.learning.replace(**passive)
    return stream.run(dataset, embeddings, settings.replace(learning=learning))


def _make_schedule(plan: EvaluationPlan) -> StreamSchedule:
    kind = plan.stream or "prequential"
    return StreamSchedule(plan.epochs, plan.seed or 0, plan.dropped, kind)


def _prepare_questions(
    plan: EvaluationPlan, dataset: Dataset, embeddings: Embeddings
) -> Iterator[CorpusQuestions]:
    closed, distinct = plan.setting == "closed", plan.level == "document" and dataset.split
    return prepare_questions(dataset, embeddings, closed=closed, distinct=distinct)


def retrieval_depth(plan: EvaluationPlan, dataset: Dataset) -> int:
    """Compute how many chunks each method is asked for, the same for all."""
    if plan.level == "chunk":
        return DEPTH
    return max(*plan.ks, DEPTH) * (CHUNKS_PER_DOCUMENT if dataset.split else 1)


def describe_run(plan: EvaluationPlan, dataset: Dataset) -> dict[str, Any]:
    """Describe data set and settings for the record of a run."""
    unmapped = sorted({gold for lost in dataset.unmapped_gold.values() for gold in lost})
    return {
        "name": plan.dataset,
        "queries": len(dataset.queries),
        "documents": len(dataset.documents),
        "file": plan.data.resolve().name if plan.data else None,
        **{name: getattr(plan, name) for name in _DESCRIBED},
        "stream": _describe_stream(plan),
        "questions_left_out": dataset.left_out,
        "unmapped_gold": sum(map(len, dataset.unmapped_gold.values())),
        "unmapped_gold_ids": unmapped,
    }


def _describe_stream(plan: EvaluationPlan) -> dict[str, Any] | None:
    if plan.stream is None:
        return None
    names = ["feedback", "shown", "noise", "epochs", "dropped", "explored"]
    names += ["passive_rate", "skip_penalty"]
    return {"kind": plan.stream} | {name: getattr(plan, name) for name in names}


def score_runs(
    plan: EvaluationPlan, dataset: Dataset, runs: Mapping[str, MethodRun]
) -> dict[str, Any]:
    """Compute figures and comparisons: the only place where answers meet labels."""
    seed = plan.seed or 0
    scored: dict[str, PerQuery] = {}
    methods: dict[str, Any] = {}
    for name, run in runs.items():
        scored[name], returned = _score_run(plan, dataset, run)
        methods[name] = summarize_run(scored[name], run, returned, seed=seed)
        labelled = [
            (item.probability, item.document in dataset.qrels[query])
            for query, found in returned.items()
            for item in found
            if item.probability is not None
        ]
        if labelled:
            methods[name]["calibration"] = measure_calibration(labelled)
    metrics = [f"{metric}@{k}" for k in plan.ks for metric in ("full", "recall")]
    metrics.append(f"ndcg@{DEPTH}")
    if plan.level == "chunk":
        metrics = list(next(iter(scored.values())))
    return {"methods": methods, "comparisons": compare_methods(scored, metrics, seed=seed)}


def _score_run(
    plan: EvaluationPlan, dataset: Dataset, run: MethodRun
) -> tuple[PerQuery, Mapping[str, Sequence[RetrievedChunk]]]:
    """Compute scores per query, and the chunks that a caller would get."""
    if plan.level == "chunk":
        texts = {query: [chunk.text for chunk in found] for query, found in run.found.items()}
        return score_chunks(dataset.facts, texts), run.found
    documents = {query: first_chunks(found) for query, found in run.found.items()}
    ranked = {query: [chunk.document for chunk in found] for query, found in documents.items()}
    returned = {query: found[: max(plan.ks)] for query, found in documents.items()}
    return score_rankings(dataset.qrels, ranked, plan.ks), returned


def _peak_memory_mb() -> float:
    """Return the largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Kibibytes, but bytes on macOS.
    return round(peak / (_MIB if sys.platform == "darwin" else 1024), 1)
