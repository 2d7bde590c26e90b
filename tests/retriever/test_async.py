"""Async use: the event loop is never blocked, and answers equal those of sync use."""

import asyncio
import time

import minilm
import pytest
from blockbuster import BlockingError, blockbuster_ctx
from passages import read_passages, read_questions

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.vectors import embedder

QUESTIONS = read_questions(20)


@pytest.fixture(scope="module")
def forty(memory):
    return CrabPathRetriever(memory=memory)


def shown(documents):
    """Documents without what differs between two turns."""
    return [
        (d.id, d.metadata["score"], *(d.metadata["crabpath"][name] for name in ("origin", "path")))
        for d in documents
    ]


async def test_async_answers_equal_sync_answers(forty):
    """Documents, scores and paths, also with options."""
    options = {"k": 7, "namespace": "ada", "explore": 3, "max_tokens": 300, "seed_ids": ["h20"]}
    for question, given in [(q, {}) for q in QUESTIONS] + [(QUESTIONS[0], options)]:
        found = await forty.ainvoke(question, **given)
        assert shown(found) == shown(forty.invoke(question, **given))


async def test_questions_do_not_block(forty):
    """Nor does one that is cancelled disturb the next."""
    options = {"explore": 1, "fill": False, "max_tokens": 100, "boost_tags": ["Ed Wood"]}
    task = asyncio.create_task(forty.ainvoke(QUESTIONS[0]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with blockbuster_ctx():
        assert await forty.ainvoke(QUESTIONS[0], **options)
        with pytest.raises(BlockingError):
            time.sleep(0.01)  # noqa: ASYNC251  blocking on purpose


async def test_the_default_model_is_loaded_off_the_loop(tmp_path, embeddings, monkeypatch):
    """By the first question to a memory that is opened again, and by the first documents."""
    passages = read_passages(3)
    CrabPathRetriever.from_documents(passages, embeddings, path=tmp_path).memory.close()
    monkeypatch.setattr(embedder, "load_default_embeddings", minilm.load)
    again = CrabPathRetriever.from_existing(tmp_path, k=1)
    fresh = CrabPathRetriever.from_documents([])
    with blockbuster_ctx():
        assert len(await again.ainvoke("Scott Derrickson")) == 1
        assert await fresh.ainvoke("anything") == []
        assert len(await fresh.aadd_documents(passages)) == 3
        assert len(await fresh.ainvoke("Scott Derrickson", k=3)) == 3
    again.memory.close()
    fresh.memory.close()
