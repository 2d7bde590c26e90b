"""What type checkers must see of the public interface; `make check` runs mypy on it."""

from pathlib import Path
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from langchain_core.vectorstores import VectorStore
from typing_extensions import assert_type

from crabpath_retrievers import (
    Answer,
    CrabPath,
    CrabPathRetriever,
    DocumentUse,
    EdgePage,
    Explanation,
    ExportResult,
    FeedbackRecord,
    HealthReport,
    IngestReport,
    Lift,
    MemoryInfo,
    NamespaceRecord,
    Neighbour,
    ReachedNode,
    Readiness,
    Receipt,
    RegionMap,
    RegionMDP,
    Settings,
    ShadowLift,
    ShadowRetriever,
    Snapshot,
    SyncPlan,
    WeightMove,
)


def asked(runnable: Runnable[str, list[Document]]) -> list[Document]:
    """A chain that wants any Runnable from text to documents."""
    return runnable.invoke("question")


def replaces_a_retriever(store: VectorStore, embeddings: Embeddings) -> list[BaseRetriever]:
    """Every way to make a retriever gives one that stands where LangChain wants one."""
    made = CrabPathRetriever.from_documents([Document("a")], embeddings, path="memory", k=4)
    assert_type(made, CrabPathRetriever)
    texts = CrabPathRetriever.from_texts(["a"], embeddings, [{"title": "A"}], ids=["a"])
    wrapped = CrabPathRetriever.from_vectorstore(store, path=Path("memory"))
    existing = CrabPathRetriever.from_existing("memory", namespace="ada")
    assert_type(asked(existing), list[Document])
    return [made, texts, wrapped, existing]


def is_a_shadow(memory: CrabPath, present: BaseRetriever) -> BaseRetriever:
    """Any retriever, and a function, serve beside a memory."""
    shadow = memory.shadow(present, namespace="ada", k=2)
    assert_type(shadow, ShadowRetriever)
    assert_type(asked(shadow), list[Document])
    return memory.shadow(lambda question: [Document(question)])


async def answers(retriever: CrabPathRetriever) -> None:
    """Sync and async questions give documents."""
    documents = retriever.invoke("question", k=2, min_score=0.1)
    assert_type(documents, list[Document])
    assert_type(retriever.record(documents, True, used=["a"]), list[Receipt])  # noqa: FBT003
    assert_type(await retriever.arecord(documents[0], "down", strict=False), Receipt)
    assert_type(retriever.record(None, 0.5), Receipt)
    assert_type(retriever.memory.record(retriever.memory.retrieve("question"), "up"), Receipt)
    assert_type(await retriever.ainvoke("question", filter={"a": 1}), list[Document])
    assert_type(await retriever.aadd_documents([Document("a")]), list[str])
    assert_type(retriever.memory, CrabPath)


async def without_framework(settings: Settings) -> None:
    """The memory itself: methods, their asynchronous forms, components under both."""
    with CrabPath.open("memory", settings=settings, create=False) as memory:
        assert_type(memory, CrabPath)
    assert_type(memory.retrieve("question", candidate_ids=["a"], one_per_document=True), Answer)
    assert_type(await memory.aio.retrieve("question"), Answer)
    assert_type(memory.as_retriever(k=2), CrabPathRetriever)
    assert_type(await memory.aio.add_documents([Document("a")]), IngestReport)
    assert_type(memory.explain(uuid4(), namespace="ada"), Explanation)
    assert_type(await memory.aio.teach("text", namespace="ada", kind="directive"), str)
    assert_type(memory.correct("text", turn_id="turn", wrong=["a"], title="t", id="n"), str)
    assert_type(memory.info(), MemoryInfo)
    assert_type(await memory.aio.ready(), Readiness)
    assert_type(await memory.aio.sync(["docs"]), SyncPlan)
    assert_type(memory.namespaces.restore("monday", namespace="ada"), Snapshot)
    assert_type(memory.graph.neighbors("a", "temporal", direction="in"), list[Neighbour])
    assert_type(await memory.aio.graph.traverse("a", ["temporal"], max_hops=2), list[ReachedNode])
    assert_type(memory.graph.edges("a", tier="reflex", limit=10), EdgePage)
    assert_type(await memory.aio.graph.changes(source="a"), list[WeightMove])
    assert_type(memory.namespaces.records(["ada"]), list[NamespaceRecord])
    assert_type(memory.learning.usage(namespace="ada", least=True), list[DocumentUse])
    assert_type(await memory.aio.learning.lift(by="week"), list[Lift])
    assert_type(await memory.aio.learning.shadow_lift(by="week"), list[ShadowLift])
    assert_type(memory.regions.map(namespace="ada"), RegionMap)
    assert_type(memory.regions.mdp(namespace="ada"), RegionMDP)
    assert_type(await memory.aio.regions.learn_episode(texts=["a"], reward=1.0), Receipt)
    assert_type(await memory.aio.maintenance.health("ada", record=False), HealthReport)
    assert_type(await memory.aio.learning.feedback(limit=3), list[FeedbackRecord])
    assert_type(memory.transfer.export("all.crabpath", namespace="ada"), ExportResult)
    async with memory as same:
        assert_type(same, CrabPath)
