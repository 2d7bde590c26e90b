"""Helpers of the ingest tests: a quick embedder that is counted, and whole-state reads."""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import IngestSettings, Settings
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.text import tokenise
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.vectors.embedder import _PROBE


class HashedWords(Embeddings):
    """A bag of hashed words: equal words give near vectors, at once and without a model."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.embedded: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts; all are remembered but the sentence that tells embedders apart."""
        self.embedded += [text for text in texts if text != _PROBE]
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """One vector; the first dimension keeps it from being zero."""
        vector = np.zeros(64)
        vector[0] = 0.1
        for token in tokenise(text):
            vector[zlib.crc32(token.encode()) % 64] += 1
        return vector.tolist()


CRASH_SETTINGS = Settings(ingest=IngestSettings(chunk_size=200, chunk_overlap=0, batch_size=16))


@pytest.fixture
def crash_settings() -> Settings:
    """Settings of the process that crashes: several chunks a document, several batches."""
    return CRASH_SETTINGS


@pytest.fixture
def embedder() -> HashedWords:
    """An embedder whose list ``embedded`` tells what it was given."""
    return HashedWords()


@pytest.fixture
def memory(tmp_path, embedder) -> Iterator[CrabPath]:
    """An empty memory on SQLite and Chroma."""
    with CrabPath.open(tmp_path / "memory", embeddings=embedder) as opened:
        yield opened


@pytest.fixture
def held() -> Callable[[CrabPath], dict[str, str]]:
    """Ids and texts that a memory holds, after checking that both stores agree on them."""

    def read(memory: CrabPath) -> dict[str, str]:
        ids = memory.store.catalog.all_ids()
        assert sorted(memory.index._collection.get(include=[])["ids"]) == sorted(ids)
        assert not memory.store.catalog.has_unfinished_ingest()
        return {i: node.content for i, node in memory.store.catalog.documents(ids).items()}

    return read


@pytest.fixture
def joined() -> Callable[..., set[tuple[str, str, str]]]:
    """All edges of a memory as (source id, target id, kind), or those of one kind as pairs."""
    from tables import edges, nodes  # a process that is killed imports this file without the stubs

    def read(memory: CrabPath, kind: EdgeKind | None = None) -> set[tuple[str, ...]]:
        source, target = nodes.alias(), nodes.alias()
        query = (
            sa.select(source.c.id, target.c.id, edges.c.kind)
            .join(source, source.c.key == edges.c.source)
            .join(target, target.c.key == edges.c.target)
        )
        with memory.store.open_reader() as connection:
            found = {(a, b, EdgeKind(k).label) for a, b, k in connection.execute(query)}
        return found if kind is None else {(a, b) for a, b, k in found if k == kind.label}

    return read


@pytest.fixture
def document() -> Callable[..., Document]:
    """Makes a document: ``document("text", id="a", title="Name")``."""

    def make(text: str, *, id: str | None = None, **metadata: object) -> Document:  # noqa: A002
        return Document(page_content=text, id=id, metadata=metadata)

    return make


@pytest.fixture(autouse=True)
def quiet_splitter(caplog) -> None:
    """The splitter warns of every line that is longer than its chunk size of 1."""
    caplog.set_level("ERROR", logger="langchain_text_splitters")
