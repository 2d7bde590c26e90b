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
    CrabPathError,
    CrabPathRetriever,
    Explanation,
    ExportResult,
    FeedbackRecord,
    GraphHit,
    HealthReport,
    IngestReport,
    MaintenanceReport,
    MemoryInfo,
    Neighbour,
    NotFoundError,
    ReachedNode,
    Receipt,
    RegionMDP,
    Settings,
    Snapshot,
    SyncPlan,
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


async def answers(retriever: CrabPathRetriever) -> None:
    """Sync and async questions give documents."""
    assert_type(retriever.invoke("question", k=2), list[Document])
    assert_type(await retriever.ainvoke("question", filter={"a": 1}), list[Document])
    assert_type(retriever.add_documents([Document("a")]), list[str])
    assert_type(await retriever.aadd_documents([Document("a")]), list[str])
    assert_type(retriever.memory, CrabPath)


async def without_framework(memory: CrabPath) -> None:
    """The memory itself."""
    assert_type(memory.retrieve("question", k=2), Answer)
    assert_type(await memory.aio.retrieve("question"), Answer)
    assert_type(memory.as_retriever(k=2), CrabPathRetriever)
    assert_type(memory.get(["a"]), list[Document])
    assert_type(memory.retrieve("question", candidate_ids=["a"], one_per_document=True), Answer)
    assert_type(memory.add_documents([Document("a")]), IngestReport)
    assert_type(await memory.aio.add_documents([Document("a")]), IngestReport)
    assert_type(memory.explain("turn"), Explanation)
    assert_type(memory.explain(uuid4(), namespace="ada"), Explanation)
    assert_type(memory.forget(ids="a"), int)
    assert_type(memory.teach("text", query="question", related=["a"]), str)
    assert_type(await memory.aio.teach("text", namespace="ada", kind="directive"), str)
    assert_type(memory.correct("text", turn_id="turn", wrong=["a"], title="t", id="n"), str)
    assert_type(memory.learning.anchor(["a"], "canonical"), int)
    assert_type(memory.info(), MemoryInfo)
    assert_type(memory.undo("f"), Receipt)
    assert_type(memory.sync(["docs"]), SyncPlan)
    assert_type(await memory.aio.sync(["docs"]), SyncPlan)


async def components(memory: CrabPath) -> None:
    """What is needed less often, and its asynchronous form under the same name."""
    assert_type(memory.namespaces.snapshot("ada", "monday"), str)
    assert_type(await memory.aio.namespaces.snapshot("ada", "monday"), str)
    assert_type(memory.namespaces.restore("monday", namespace="ada"), Snapshot)
    assert_type(memory.graph.neighbors("a", "temporal", direction="in"), list[Neighbour])
    assert_type(await memory.aio.graph.traverse("a", ["temporal"], max_hops=2), list[ReachedNode])
    assert_type(memory.graph.search("question", k=2), list[GraphHit])
    assert_type(memory.regions.mdp(namespace="ada"), RegionMDP)
    assert_type(await memory.aio.regions.learn_episode(texts=["a"], reward=1.0), Receipt)
    assert_type(memory.maintenance.run(["fade"], dry_run=True), MaintenanceReport)
    assert_type(await memory.aio.maintenance.health("ada", record=False), HealthReport)
    assert_type(await memory.aio.maintenance.set_knobs("ada", half_life=500), str)
    assert_type(memory.learning.undo_all(user="eve"), list[Receipt])
    assert_type(await memory.aio.learning.feedback(limit=3), list[FeedbackRecord])
    assert_type(memory.transfer.export("all.crabpath", namespace="ada"), ExportResult)
    async with memory as same:
        assert_type(same, CrabPath)


def open_memory(settings: Settings) -> None:
    """A memory is a context manager of its own type."""
    with CrabPath.open("memory", settings=settings, create=False) as memory:
        assert_type(memory, CrabPath)


def errors(memory: CrabPath) -> str:
    """Errors are caught by their base."""
    try:
        memory.explain("turn")
    except NotFoundError as error:
        return str(error)
    except CrabPathError as error:
        return repr(error)
    return ""
