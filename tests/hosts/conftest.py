"""A memory over real passages for the tests of every host framework."""

import asyncio
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openai
import pytest
from chat_server import ChatServer
from host_answers import QUESTION
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from passages import read_passages
from pytest_httpserver import HTTPServer

from crabpath_retrievers import CrabPathRetriever

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI


class WordVectors(Embeddings):
    """Texts that share words are near each other: no model runs."""

    model_name = "words"

    def embed_query(self, text: str) -> list[float]:
        vector = np.zeros(384)
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % 384] = 1
        return list(map(float, vector / (np.linalg.norm(vector) or 1)))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


@pytest.fixture(scope="session")
def embeddings() -> Embeddings:
    return WordVectors()


@pytest.fixture
def question() -> str:
    """What two of the passages answer together."""
    return QUESTION


@pytest.fixture(scope="session")
def passages() -> list[Document]:
    """The ten passages of the first HotpotQA question."""
    return read_passages(10)


@pytest.fixture(scope="session")
def indexed(
    embeddings: Embeddings, passages: list[Document], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory over the passages, which tests that teach one copy."""
    place = tmp_path_factory.mktemp("indexed") / "memory"
    CrabPathRetriever.from_documents(passages, embeddings, path=place).memory.close()
    return place


@pytest.fixture
def place(indexed: Path, tmp_path: Path) -> Path:
    """A copy of it for the test alone."""
    return Path(shutil.copytree(indexed, tmp_path / "indexed"))


@pytest.fixture(scope="session")
def retriever(embeddings: Embeddings, passages: list[Document]) -> Iterator[CrabPathRetriever]:
    """A retriever that no test teaches: embedded Chroma and SQLite."""
    made = CrabPathRetriever.from_documents(passages, embeddings, k=4)
    yield made
    made.memory.close()


@pytest.fixture
def own_retriever(place: Path, embeddings: Embeddings) -> Iterator[CrabPathRetriever]:
    """A retriever that the test may teach."""
    made = CrabPathRetriever.from_existing(place, embeddings, k=3)
    yield made
    made.memory.close()


@pytest.fixture(scope="session")
def chat_client(make_httpserver: HTTPServer) -> "ChatOpenAI":
    from langchain_openai import ChatOpenAI

    url = make_httpserver.url_for("/v1")
    client = ChatOpenAI(model="m", base_url=url, api_key="x", max_retries=0)
    # It reads certificates when it is first used, which would block an event loop.
    with suppress(openai.APIError):
        asyncio.run(client.ainvoke("Hello"))
    return client


@pytest.fixture
def model(chat_client: "ChatOpenAI", chat_server: ChatServer) -> "ChatOpenAI":
    """OpenAI's client, asking the chat server."""
    return chat_client
