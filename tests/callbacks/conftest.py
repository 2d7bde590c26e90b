"""A memory over real passages that every test may teach, and who writes down what it was told."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.callbacks import CrabPathCallbackHandler

SAMPLE = Path(__file__).parents[2] / "examples" / "hotpotqa_sample"


@pytest.fixture(scope="session")
def passages() -> list[Document]:
    """The ten passages of the first HotpotQA question."""
    lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:10]
    rows = [json.loads(line) for line in lines]
    return [
        Document(id=row["_id"], page_content=row["text"], metadata={"title": row["title"]})
        for row in rows
    ]


@pytest.fixture(scope="session")
def indexed(
    embeddings: Embeddings, passages: list[Document], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory over the passages that nobody has taught: embedded Chroma, SQLite, MiniLM."""
    place = tmp_path_factory.mktemp("indexed") / "memory"
    CrabPathRetriever.from_documents(passages, embeddings, path=place).memory.close()
    return place


@pytest.fixture
def place(indexed: Path, tmp_path: Path) -> Path:
    """A copy of it for the test alone."""
    return Path(shutil.copytree(indexed, tmp_path / "memory"))


@pytest.fixture
def retriever(place: Path, embeddings: Embeddings) -> Iterator[CrabPathRetriever]:
    """CrabPath over that copy."""
    made = CrabPathRetriever.from_existing(place, embeddings, k=3)
    yield made
    made.memory.close()


class Told(list):
    """Every feedback that a handler recorded, with its receipt."""

    def __call__(self, feedback, receipt):
        """Note it."""
        self.append((feedback, receipt))

    @property
    def kinds(self) -> list[str]:
        """Kinds of the events, in order."""
        return [feedback.feedback_id.split(":")[1] for feedback, _ in self]

    @property
    def statuses(self) -> list[str]:
        """What became of them."""
        return [receipt.status for _, receipt in self]


@pytest.fixture
def told() -> Told:
    """What the handler of the test recorded."""
    return Told()


@pytest.fixture
def handler(retriever: CrabPathRetriever, told: Told) -> CrabPathCallbackHandler:
    """A handler with the shipped policy."""
    return CrabPathCallbackHandler(retriever, on_receipt=told)
