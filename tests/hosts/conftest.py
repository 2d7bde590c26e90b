"""A retriever over real passages, shared by the tests of every host framework."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import CrabPathRetriever

SAMPLE = Path(__file__).parents[2] / "examples" / "hotpotqa_sample"


@pytest.fixture(scope="session")
def passages() -> list[Document]:
    """The passages of the first three HotpotQA questions, ten per question."""
    lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:30]
    rows = [json.loads(line) for line in lines]
    return [
        Document(id=row["_id"], page_content=row["text"], metadata={"title": row["title"]})
        for row in rows
    ]


@pytest.fixture(scope="session")
def indexed(
    embeddings: Embeddings, passages: list[Document], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory over the passages of the first question, which tests that teach one copy."""
    place = tmp_path_factory.mktemp("indexed") / "memory"
    CrabPathRetriever.from_documents(passages[:10], embeddings, path=place).memory.close()
    return place


@pytest.fixture
def place(indexed: Path, tmp_path: Path) -> Path:
    """A copy of it for the test alone."""
    return Path(shutil.copytree(indexed, tmp_path / "indexed"))


@pytest.fixture(scope="session")
def retriever(embeddings: Embeddings, passages: list[Document]) -> Iterator[CrabPathRetriever]:
    """CrabPath over the passages: embedded Chroma, SQLite, all-MiniLM-L6-v2."""
    made = CrabPathRetriever.from_documents(passages, embeddings, k=4)
    yield made
    made.memory.close()
