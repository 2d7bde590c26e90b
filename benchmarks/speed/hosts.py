"""``make bench-hosts``: what each host framework adds to a call, and a hundred calls at once."""

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

import numpy as np
from langchain_core.documents import Document

from benchmarks.speed.timing import K, time_call
from crabpath_lab.datasets import Dataset
from crabpath_lab.statistics import percentiles
from crabpath_retrievers import CrabPath, CrabPathRetriever
from crabpath_retrievers.core.records import Vector

_AT_ONCE = 100
_ONE_BY_ONE = 40
_ROUNDS = 200
_IMPORT = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"

HostCall = Callable[[str], Any]


class GraphState(TypedDict, total=False):
    """What the measured graphs read and write."""

    question: str
    documents: list[Document]
    turn_id: str


def measure_hosts(
    dataset: Dataset,
    *,
    rounds: int = _ROUNDS,
    at_once: int = _AT_ONCE,
    one_by_one: int = _ONE_BY_ONE,
) -> dict[str, Any]:
    """All figures, as one JSON-safe record; milliseconds, the embedding of queries included.

    Args:
        dataset: What is indexed and asked.
        rounds: Interleaved calls per host.
        at_once: Concurrent calls.
        one_by_one: Calls that are timed alone.
    """
    with CrabPath.open() as memory:
        memory.add_documents(dataset.documents, split=False)
        retriever = CrabPathRetriever(memory=memory, k=K)
        questions = list(dataset.queries.values())
        calls = host_calls(retriever)
        return {
            "questions": len(questions),
            "documents": len(dataset.documents),
            "overhead_ms": {
                name: time_overhead(own, library, questions, rounds)
                for name, (own, library) in calls.items()
            },
            "import_s": {"crabpath_retrievers": time_import("crabpath_retrievers")},
            "concurrent": asyncio.run(time_concurrent(retriever, questions, at_once, one_by_one)),
        }


def host_calls(retriever: CrabPathRetriever) -> Mapping[str, tuple[HostCall, HostCall]]:
    """What a host calls, and what it is compared with, by name."""
    from langgraph_crabpath import crabpath_retrieve
    from llama_index.retrievers.crabpath import CrabPathRetriever as LlamaIndexRetriever

    memory = retriever.memory
    node = crabpath_retrieve(retriever)
    own, plain = _compile_graph(node), _compile_graph(_handwritten_node(retriever))
    llama = LlamaIndexRetriever(memory=memory, similarity_top_k=K)

    def library(text: str) -> object:
        return memory.retrieve(text, k=K)

    return {
        "LangChain retriever": (retriever.invoke, library),
        "LangGraph node": (lambda text: node.invoke({"question": text}), retriever.invoke),
        "LangGraph node in a graph": (
            lambda text: own.invoke({"question": text}),
            lambda text: plain.invoke({"question": text}),
        ),
        "LlamaIndex retriever": (llama.retrieve, library),
    }


def _handwritten_node(retriever: CrabPathRetriever) -> HostCall:
    """A node that somebody would write by hand."""

    def node(state: GraphState) -> GraphState:
        documents = retriever.invoke(state["question"])
        turn_id = documents[0].metadata["crabpath"]["turn_id"]
        return {"documents": documents, "turn_id": turn_id}

    return node  # type: ignore[return-value]


def _compile_graph(node: Any) -> Any:
    from langgraph.graph import StateGraph

    builder = StateGraph(GraphState)
    builder.add_node("retrieve", node)
    builder.set_entry_point("retrieve")
    return builder.compile()


def time_overhead(
    own: HostCall, library: HostCall, questions: Sequence[str], rounds: int
) -> dict[str, float]:
    """Medians of both and of their paired difference, first one and then the other in turn."""
    pairs = []
    for number in range(rounds):
        text = questions[number % len(questions)]
        order = (own, library) if number % 2 else (library, own)
        took = {call: time_call(partial(call, text))[0] * 1000 for call in order}
        pairs.append((took[own], took[library]))
    mine, theirs = zip(*pairs, strict=True)
    return {
        "own_p50": round(statistics.median(mine), 2),
        "library_p50": round(statistics.median(theirs), 2),
        "difference_p50": round(statistics.median(a - b for a, b in pairs), 2),
    }


def time_import(name: str) -> float:
    """Seconds of an import in a fresh interpreter, the least of five."""
    program = [sys.executable, "-c", _IMPORT.format(name)]
    runs = [subprocess.run(program, check=True, capture_output=True) for _ in range(5)]  # noqa: S603
    return round(min(float(run.stdout) for run in runs), 3)


async def time_concurrent(
    retriever: CrabPathRetriever, questions: Sequence[str], at_once: int, one_by_one: int
) -> dict[str, Any]:
    """Calls one by one, then all at once, with the time that each waited for its embedding.

    Returns:
        ``single`` and ``at_once``: p50 and p95; ``embedding``: the same of waiting for the
        embedder; ``bound``: three single calls and the p95 of that; ``share_of_bound``.
    """
    waited: list[float] = []
    embedder = retriever.memory.embedder
    embed = embedder.aquery

    async def clocked(text: str) -> Vector:
        begun = time.perf_counter()
        vector = await embed(text)
        waited.append((time.perf_counter() - begun) * 1000)
        return vector

    async def call(number: int) -> float:
        begun = time.perf_counter()
        await retriever.ainvoke(questions[number % len(questions)])
        return (time.perf_counter() - begun) * 1000

    embedder.aquery = clocked  # type: ignore[method-assign]
    single = [await call(number) for number in range(one_by_one)]
    waited.clear()
    together = await asyncio.gather(*[call(number) for number in range(at_once)])
    bound = 3 * float(np.median(single)) + float(np.percentile(waited, 95))
    return {
        "calls": at_once,
        "single": percentiles(single),
        "at_once": percentiles(together),
        "embedding": percentiles(waited),
        "bound": round(bound, 2),
        "share_of_bound": round(float(np.percentile(together, 95)) / bound, 3),
    }
