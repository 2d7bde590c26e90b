"""``make bench``: quality, latency, ingest and size, each against plain Chroma in one run."""

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from chromadb.config import Settings as ChromaSettings
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.speed.synthetic_store import measure_scale
from benchmarks.speed.timing import K, time_call, time_without_embedding
from crabpath_retrievers import CrabPath, CrabPathRetriever
from crabpath_retrievers.evaluation.datasets import Dataset
from crabpath_retrievers.evaluation.scoring.measures import score_rankings
from crabpath_retrievers.evaluation.scoring.statistics import compare_paired, percentiles
from crabpath_retrievers.vectors.embedder import load_default_embeddings

_WARM_UP = 20


def measure_retrieval(dataset: Dataset, folder: Path, *, limit: int, nodes: int) -> dict[str, Any]:
    """All figures, as one JSON-safe record."""
    embeddings = load_default_embeddings()
    embeddings.embed_documents(["warm up"] * 8)
    plain_seconds, chroma = time_call(
        lambda: index_plain_chroma(dataset.documents, embeddings, folder)
    )
    memory = CrabPath.open(folder / "memory", embeddings=embeddings)
    own_seconds, _ = time_call(lambda: memory.add_documents(dataset.documents, split=False))
    asked = list(dataset.queries.values())
    queries, others = asked[:limit], asked[limit:] or asked[:_WARM_UP]
    vectors = [memory.embedder.query(text) for text in queries]
    warm = list(zip(others, map(memory.embedder.query, others), strict=True))
    report = {
        "data": {
            "name": dataset.name,
            "documents": len(dataset.documents),
            "queries": len(dataset.queries),
            "timed": len(queries),
            "k": K,
            "embedder": memory.embedder.model,
        },
        "quality": measure_quality_of_both(dataset, chroma, memory),
        "invoke": time_paired(chroma, memory, queries),
        "without_embedding_ms": percentiles(
            time_without_embedding(memory, list(zip(queries, vectors, strict=True)), warm)
        ),
        "ingest": {
            "plain_chroma_s": round(plain_seconds, 1),
            "crabpath_s": round(own_seconds, 1),
            "ratio": round(own_seconds / plain_seconds, 3),
        },
    }
    if nodes:
        report["scale"] = measure_scale(
            memory,
            dataset,
            list(zip(queries, vectors, strict=True)),
            warm,
            folder / "scale",
            nodes=nodes,
        )
        p50 = report["scale"]["without_embedding_ms"]["p50"]
        report["scale"]["ratio_to_small"] = round(p50 / report["without_embedding_ms"]["p50"], 3)
    memory.close()
    return report


def index_plain_chroma(
    documents: Sequence[Document], embeddings: Embeddings, folder: Path
) -> Chroma:
    """The same documents in LangChain's own Chroma store, cosine space, nothing else changed."""
    store = Chroma(
        "plain",
        embeddings,
        persist_directory=str(folder / "plain"),
        client_settings=ChromaSettings(anonymized_telemetry=False, is_persistent=True),
        collection_configuration={"hnsw": {"space": "cosine"}},
    )
    store.add_documents(list(documents), ids=[str(document.id) for document in documents])
    return store


def measure_quality_of_both(dataset: Dataset, chroma: Chroma, memory: CrabPath) -> dict[str, Any]:
    """full@5 and recall@5 of both with the paired difference; same k, same embedder."""
    runs: dict[str, dict[str, list[str]]] = {"plain_chroma": {}, "crabpath": {}}
    for query_id, text in dataset.queries.items():
        found = chroma.similarity_search(text, k=K)
        runs["plain_chroma"][query_id] = [str(document.id) for document in found]
        answer = memory.retrieve(text, k=K, record=False)
        runs["crabpath"][query_id] = [item.node.id for item in answer.documents]
    scored = {name: score_rankings(dataset.qrels, run, (K,)) for name, run in runs.items()}
    full = {name: found[f"full@{K}"] for name, found in scored.items()}
    return {
        name: {of: round(float(np.mean(found[f"{of}@{K}"])), 4) for of in ("recall", "full")}
        for name, found in scored.items()
    } | {"full@5 difference": compare_paired(full["crabpath"], full["plain_chroma"])}


def time_paired(chroma: Chroma, memory: CrabPath, queries: Sequence[str]) -> dict[str, Any]:
    """Time of ``invoke`` with both, query by query in turns, embedding included."""
    plain = chroma.as_retriever(search_kwargs={"k": K})
    own = CrabPathRetriever(memory=memory, k=K)
    for text in queries[:_WARM_UP]:
        plain.invoke(text)
        own.invoke(text)
    times: dict[str, list[float]] = {"plain": [], "own": []}
    for number, text in enumerate(queries):
        order = (("plain", plain), ("own", own))
        for name, retriever in order if number % 2 else reversed(order):
            seconds, _ = time_call(partial(retriever.invoke, text))
            memory.store.flush()  # what is written behind one answer must not slow the next
            times[name].append(seconds * 1000)
    ratios = [own / plain for own, plain in zip(times["own"], times["plain"], strict=True)]
    return {
        "plain_chroma_ms": percentiles(times["plain"]),
        "crabpath_ms": percentiles(times["own"]),
        "ratio_of_medians": round(
            statistics.median(times["own"]) / statistics.median(times["plain"]), 3
        ),
        "median_of_ratios": round(statistics.median(ratios), 3),
    }
