"""Async use: the event loop is never blocked, and answers equal those of sync use."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import minilm
import pytest
from blockbuster import BlockingError, blockbuster_ctx
from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.vectors import embedder

SAMPLE = Path(__file__).parents[1] / "examples" / "hotpotqa_sample"


def read(name, count):
    """The first rows of a file of the HotpotQA sample."""
    lines = (SAMPLE / name).read_text(encoding="utf-8").splitlines()[:count]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def passages() -> list[Document]:
    """The passages of three questions."""
    return [
        Document(id=row["_id"], page_content=row["text"], metadata={"title": row["title"]})
        for row in read("corpus.jsonl", 30)
    ]


@pytest.fixture(scope="module")
def questions() -> list[str]:
    """Twenty questions."""
    return [row["text"] for row in read("queries.jsonl", 20)]


@pytest.fixture(scope="module")
def retriever(embeddings, passages) -> Iterator[CrabPathRetriever]:
    """A retriever over the passages."""
    made = CrabPathRetriever.from_documents(passages, embeddings)
    yield made
    made.memory.close()


@pytest.fixture
def unblocked() -> Iterator[None]:
    """Any blocking call on the event loop raises."""
    with blockbuster_ctx():
        yield


def shown(documents):
    """Documents without what differs between two turns."""
    return [
        (
            d.id,
            d.metadata["score"],
            d.metadata["crabpath"]["origin"],
            d.metadata["crabpath"]["path"],
        )
        for d in documents
    ]


async def test_guard_is_awake(unblocked):
    """The guard of these tests notices a blocking call."""
    with pytest.raises(BlockingError):
        time.sleep(0.01)  # noqa: ASYNC251  blocking on purpose


async def test_async_answers_equal_sync_answers(retriever, questions):
    """Twenty questions get the same documents, scores and paths from invoke and ainvoke."""
    for question in questions:
        assert shown(await retriever.ainvoke(question)) == shown(retriever.invoke(question))


async def test_async_options_equal_sync_options(retriever, questions):
    """Options of a call mean the same to ainvoke."""
    options = {"k": 7, "namespace": "ada", "explore": 3, "max_tokens": 300, "seed_ids": ["h20"]}
    found = await retriever.ainvoke(questions[0], **options)
    assert shown(found) == shown(retriever.invoke(questions[0], **options))


async def test_explored_ainvoke_does_not_block(retriever, questions, unblocked):
    """Ainvoke with all its options leaves the event loop free."""
    options = {"explore": 1, "fill": False, "max_tokens": 100, "boost_tags": ["Ed Wood"]}
    assert await retriever.ainvoke(questions[0], **options)


async def test_first_ainvoke_loads_the_model_off_the_loop(
    retriever, passages, tmp_path, embeddings, monkeypatch
):
    """The first question to a reopened memory with the default model blocks nobody."""
    monkeypatch.setattr(embedder, "load_default_embeddings", minilm.load)
    made = CrabPathRetriever.from_documents(passages[:3], embeddings, path=tmp_path)
    made.memory.close()
    again = CrabPathRetriever.from_existing(tmp_path, k=1)
    with blockbuster_ctx():
        assert len(await again.ainvoke("Scott Derrickson")) == 1
    again.memory.close()


async def test_first_ainvoke_of_an_empty_memory_does_not_block():
    """The first question to an empty memory with the default model blocks nobody."""
    empty = CrabPathRetriever.from_documents([])
    with blockbuster_ctx():
        assert await empty.ainvoke("anything") == []
    empty.memory.close()


async def test_aadd_documents_does_not_block(passages):
    """The first aadd_documents, which loads the default model, leaves the event loop free."""
    fresh = CrabPathRetriever.from_documents([])
    with blockbuster_ctx():
        assert len(await fresh.aadd_documents(passages[:3])) == 3
        assert len(await fresh.ainvoke("Scott Derrickson", k=3)) == 3
    fresh.memory.close()


async def test_questions_while_documents_are_added(embeddings, passages, questions):
    """Questions are answered exactly while documents come in."""
    retriever = CrabPathRetriever.from_documents(passages[:10], embeddings, k=5)
    adding = asyncio.create_task(retriever.aadd_documents(passages[10:]))
    answers = [await retriever.ainvoke(question) for question in questions[:5]]
    await adding
    assert [len(answer) for answer in answers] == [5] * 5
    assert len(await retriever.ainvoke(questions[0], k=100)) == retriever.memory.info()["nodes"]
    retriever.memory.close()


async def test_a_cancelled_question_leaves_the_memory_usable(retriever, questions):
    """A question that is given up does not spoil the next."""
    task = asyncio.create_task(retriever.ainvoke(questions[0]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await retriever.ainvoke(questions[0])) == 4
