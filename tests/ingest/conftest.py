"""Helpers of the ingest tests: a quick counted embedder, a quick index, and whole-state reads."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from tables import edges, nodes

from crabpath_retrievers import CrabPath, EdgeKind, VectorIndex
from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.text import tokenise
from crabpath_retrievers.vectors.embedder import _PROBE, _RELATED, _UNRELATED
from tests.seams import get_collection


class HashedWords(Embeddings):
    """A bag of hashed words: equal words give near vectors, at once and without a model."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts; all are remembered but the sentences that tell embedders apart."""
        self.embedded += [text for text in texts if text not in {_PROBE, *_UNRELATED, *_RELATED}]
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """One vector; the first dimension keeps it from being zero."""
        vector = np.zeros(64)
        vector[0] = 0.1
        for token in tokenise(text):
            vector[zlib.crc32(token.encode()) % 64] += 1
        return vector.tolist()


class DictIndex(VectorIndex):
    """A vector index that the memory owns, as a dictionary: ``rows`` has vectors and metadata."""

    description = "dictionary"

    def __init__(self) -> None:
        self.rows: dict[str, tuple] = {}

    def upsert(self, ids, vectors, texts, metadatas) -> None:
        rows = zip(vectors, metadatas, strict=True)
        self.rows.update(zip(ids, rows, strict=True))

    def delete(self, ids) -> None:
        for node_id in ids:
            self.rows.pop(node_id, None)

    def search(self, vector, k, filter=None) -> list[str]:  # noqa: A002  the protocol's name
        self.require_no_filter(filter)
        return sorted(self.rows, key=lambda node_id: -(self.rows[node_id][0] @ vector))[:k]

    def count(self) -> int:
        return len(self.rows)


@pytest.fixture
def embedder() -> HashedWords:
    """An embedder with a list ``embedded`` of what it was given."""
    return HashedWords()


@pytest.fixture
def open_memory(tmp_path, embedder) -> Iterator[Callable[..., CrabPath]]:
    """Opens empty memories on SQLite; parts of the settings may be given."""
    opened: list[CrabPath] = []

    def open_at(path: str | None = None, **parts: object) -> CrabPath:
        place = path or tmp_path / f"memory{len(opened)}"
        settings = Settings(**parts)
        opened.append(
            CrabPath.open(place, embeddings=embedder, settings=settings, vectors=DictIndex())
        )
        return opened[-1]

    yield open_at
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(open_memory) -> CrabPath:
    """An empty memory."""
    return open_memory()


@pytest.fixture
def contents() -> Callable[[CrabPath], dict[str, str]]:
    """Ids and texts that a memory holds, after checking that both stores agree on them."""

    def read(memory: CrabPath) -> dict[str, str]:
        catalog, index = memory.store.catalog, memory.index
        ids = catalog.all_ids()
        indexed = index.rows if isinstance(index, DictIndex) else get_collection(index).get()["ids"]
        assert sorted(indexed) == sorted(ids)
        assert not catalog.has_unfinished_ingest()
        return {i: node.content for i, node in catalog.documents(ids).items()}

    return read


@pytest.fixture
def snapshot() -> Callable[[CrabPath], tuple[list[str], dict]]:
    """Every row of SQLite, journal included, and the metadata in the index."""

    def read(memory: CrabPath) -> tuple[list[str], dict]:
        with memory.store.connect() as connection:
            rows = list(connection.connection.driver_connection.iterdump())
        return rows, {node_id: row[1] for node_id, row in memory.index.rows.items()}

    return read


@pytest.fixture
def joined() -> Callable[..., set[tuple[str, ...]]]:
    """All edges of a memory as (source id, target id, kind), or those of one kind as pairs."""

    def read(memory: CrabPath, kind: EdgeKind | None = None) -> set[tuple[str, ...]]:
        source, target = nodes.alias(), nodes.alias()
        query = (
            sa.select(source.c.id, target.c.id, edges.c.kind)
            .join(source, source.c.key == edges.c.source)
            .join(target, target.c.key == edges.c.target)
        )
        with memory.store.connect() as connection:
            found = {(a, b, EdgeKind(k).label) for a, b, k in connection.execute(query)}
        return found if kind is None else {(a, b) for a, b, k in found if k == kind.label}

    return read


@pytest.fixture
def chained(joined) -> Callable[[CrabPath, Iterable[str]], bool]:
    """Whether the sibling edges of a memory are those of a chain of texts, and no others."""

    def compare(memory: CrabPath, texts: Iterable[str]) -> bool:
        known = memory.store.catalog.documents(memory.store.catalog.all_ids())
        pairs = {(known[a].content, known[b].content) for a, b in joined(memory, EdgeKind.SIBLING)}
        expected = set(pairwise(texts))
        return pairs == expected | {(b, a) for a, b in expected}

    return compare


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
