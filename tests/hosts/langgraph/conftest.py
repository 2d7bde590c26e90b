"""A small memory that a test may change, and a chat model behind a real client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer
from langchain_core.embeddings import Embeddings
from langchain_openai import ChatOpenAI

from crabpath_retrievers import CrabPathRetriever

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"


@pytest.fixture
def retriever(place: Path, embeddings: Embeddings) -> Iterator[CrabPathRetriever]:
    """CrabPath over the ten passages of one question."""
    made = CrabPathRetriever.from_existing(place, embeddings, k=3)
    yield made
    made.memory.close()


@pytest.fixture
def model(chat_server: ChatServer) -> ChatOpenAI:
    """OpenAI's client, asking the server of this machine."""
    return ChatOpenAI(model="m", base_url=chat_server.url, api_key="x", max_retries=0)


@pytest.fixture
def question() -> str:
    """What the passages answer."""
    return QUESTION


@pytest.fixture(params=["async", pytest.param("sync", marks=pytest.mark.slow)])
def called(request: pytest.FixtureRequest):
    """Calls a Runnable, once with invoke and once with ainvoke."""

    async def call(runnable, *args, **options):
        if request.param == "sync":
            return runnable.invoke(*args, **options)
        return await runnable.ainvoke(*args, **options)

    return call
