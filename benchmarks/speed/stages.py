"""Processor time of a query, a feedback and an addition, by stage.

The functions of each stage are timed by the processor time of their thread, less that of other
stages that they call. What other threads do is the difference to the processor time of the
process. So a table adds up to the whole by construction; ``rest`` is what no stage accounts for:
the frames between the stages, connections and locks.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from inspect import isgeneratorfunction
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_retrievers import CrabPath
from crabpath_retrievers.vectors.embedder import load_default_embeddings

# By stage, ``module:name`` of its functions, in the package.
STAGES: dict[str, tuple[str, ...]] = {
    "embed": ("vectors.embedder:Embedder.query", "vectors.embedder:Embedder.try_documents"),
    "vector search": ("retrieval.search:SeedSearch._search_dense",),
    "words": ("retrieval.search:search_lexical", "storage.read.walk:WalkQueries.read_facts"),
    "names": ("retrieval.search:SeedSearch._match_names",),
    "edges": ("retrieval.pipeline:RetrievalPipeline._read_edges",),
    "learned values": (
        "retrieval.search:SeedSearch._score_past",
        "retrieval.namespace_model:NamespaceModels.recall",
        "retrieval.namespace_model:NamespaceModels.add_usage",
        "retrieval.namespace_model:NamespaceModels.ranker",
        "retrieval.namespace_model:NamespaceModels.has_lost",
        "retrieval.namespace_model:NamespaceModels.list_tried_actions",
    ),
    "walk": ("retrieval.walk:Walker.steps",),
    "rank": (
        "retrieval.search:SeedSearch.find",
        "retrieval.pipeline:RetrievalPipeline._collect_pool",
        "retrieval.chooser:DocumentChooser.choose",
        "retrieval.chooser:DocumentChooser.rank",
        "retrieval.chooser:DocumentChooser.compare",
    ),
    "read": ("storage.read.walk:WalkQueries.get_documents",),
    "record": ("retrieval.pipeline:build_turn", "storage.store:GraphStore.record"),
    "keep": ("learning.recorder:Recorder._keep",),
    "credit": ("learning.recorder:assign_feedback",),
    "learn": ("learning.lesson:FeedbackLearner.learn",),
    "split": ("ingest.chunking:Chunking.make_nodes",),
    "index vectors": ("vectors.chroma:ChromaIndex.upsert",),
    "link": ("ingest.linking:Linking.find_edges",),
    "write": ("storage.store:GraphStore.apply", "storage.store:GraphStore.apply_together"),
}
OTHERS, REST = "other threads", "rest"


class StageClock:
    """Processor seconds by stage, of the thread that made it."""

    def __init__(self) -> None:
        """Start with no stage."""
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = [REST]
        self._since = time.thread_time()
        self._thread = threading.get_ident()

    def enter(self, stage: str) -> None:
        """Count for the stage from here on."""
        self._close_interval()
        self._open.append(stage)

    def leave(self) -> None:
        """Count for the stage before again."""
        self._close_interval()
        self._open.pop()

    def is_own(self) -> bool:
        """Whether this thread made the clock; the others' time is ``other threads``."""
        return threading.get_ident() == self._thread

    def _close_interval(self) -> None:
        now = time.thread_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now


def _wrap(function: Callable[..., Any], stage: str, clock: StageClock) -> Callable[..., Any]:
    if isgeneratorfunction(function):

        @wraps(function)
        def steps(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
            generator, value = function(*args, **options), None
            while True:
                clock.enter(stage)
                try:
                    asked = generator.send(value)
                except StopIteration as done:
                    return done.value
                finally:
                    clock.leave()
                value = yield asked

        return steps

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not clock.is_own():
            return function(*args, **options)
        clock.enter(stage)
        try:
            return function(*args, **options)
        finally:
            clock.leave()

    return call


@contextmanager
def time_stages(clock: StageClock) -> Iterator[None]:
    """Replace the functions of the stages by timed ones."""
    replaced = []
    for stage, places in STAGES.items():
        for place in places:
            module, _, name = place.partition(":")
            holder: Any = import_module(f"crabpath_retrievers.{module}")
            *owners, last = name.split(".")
            for owner in owners:
                holder = getattr(holder, owner)
            replaced.append((holder, last, vars(holder)[last]))
            setattr(holder, last, _wrap(replaced[-1][2], stage, clock))
    try:
        yield
    finally:
        for holder, last, function in replaced:
            setattr(holder, last, function)


def profile(
    calls: Sequence[Callable[[], object]], settle: Callable[[], object]
) -> dict[str, float]:
    """Milliseconds by stage of a median call; ``settle`` waits for what a call leaves to others."""
    taken: list[dict[str, float]] = []
    for call in calls:
        clock, begun = StageClock(), time.process_time()
        with time_stages(clock):
            call()
            clock.enter(REST)
            settle()
        whole = time.process_time() - begun
        seconds = dict(clock.seconds)
        taken.append(seconds | {OTHERS: max(0.0, whole - sum(seconds.values()))})
    order = sorted(taken, key=lambda one: sum(one.values()))
    middle = order[len(order) // 4 : len(order) - len(order) // 4]
    stages = [*STAGES, REST, OTHERS]
    means = {s: sum(one.get(s, 0.0) for one in middle) / len(middle) * 1000 for s in stages}
    return {stage: value for stage, value in means.items() if value}


def measure_profile(
    dataset: Dataset, folder: Path, *, limit: int, embeddings: Embeddings | None = None
) -> dict[str, dict[str, float]]:
    """Profile a cold and a learned query, a feedback and an addition over a data set.

    Args:
        dataset: Documents and questions with their right documents.
        folder: Where the memory is made.
        limit: Calls of each kind.
        embeddings: None for all-MiniLM-L6-v2.
    """
    texts = list(dataset.queries.items())
    limit = min(limit, len(texts) // 2)
    taught, asked = texts[:limit], texts[limit : 2 * limit]
    documents, added = dataset.documents[:-limit], dataset.documents[-limit:]
    with CrabPath.open(folder, embeddings=embeddings or load_default_embeddings()) as memory:
        memory.add_documents(documents, split=dataset.split)
        memory.retrieve(asked[0][1])

        def ask(namespace: str) -> list[Callable[[], object]]:
            return [partial(memory.retrieve, text, namespace=namespace) for _, text in asked]

        tables = {"cold query": profile(ask("cold"), memory.store.flush)}
        answers = [(memory.retrieve(text, namespace="taught"), name) for name, text in taught]
        memory.store.flush()
        reports = [
            partial(memory.record, answer, 1.0, used=used)
            for answer, name in answers
            if (used := [r.node.id for r in answer.documents if r.node.id in dataset.qrels[name]])
        ]
        tables["feedback"] = profile(reports, memory.store.flush)
        memory.retrieve(asked[0][1], namespace="taught")
        tables["learned query"] = profile(ask("taught"), memory.store.flush)
        additions = [
            lambda one=one: memory.add_documents([one], split=dataset.split) for one in added
        ]
        tables["addition"] = profile(additions, memory.store.flush)
    return tables


def render_profile(tables: dict[str, dict[str, float]]) -> str:
    """Render a Markdown table: milliseconds of processor time, a row for each stage."""
    stages = [s for s in (*STAGES, REST, OTHERS) if any(s in table for table in tables.values())]
    lines = [f"| ms of processor time | {' | '.join(tables)} |", "|---" * (len(tables) + 1) + "|"]
    for stage in stages:
        cells = [f"{table[stage]:.2f}" if stage in table else "" for table in tables.values()]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    sums = " | ".join(f"{sum(table.values()):.2f}" for table in tables.values())
    return "\n".join([*lines, f"| whole | {sums} |"])
