"""Claims that hold for every LangChain vector store that a memory may wrap."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.parts.vector_store import VectorStoreIndex, find_kind
from crabpath_retrievers.retriever import CrabPathRetriever
from crabpath_retrievers.testing.vector_indexes import (
    NumberEmbeddings,
    VectorIndexTests,
    search_ids,
)


def _make_document(text: str) -> Document:
    """Make a document whose id every store takes."""
    node_id = str(uuid.uuid5(uuid.NAMESPACE_URL, text))
    return Document(text, id=node_id, metadata={"lang": "en"})


OWNED = [_make_document(text) for text in ("1 0 0", "1 1 0", "0 1 0", "0 0 1")]
NEW = _make_document("0 1 1")
CHANGED = Document("1 0 1", id=OWNED[0].id, metadata={"lang": "de"})


def _store_documents(store: VectorStore, documents: Sequence[Document]) -> None:
    """Add documents as the owner of a store does."""
    store.add_documents(list(documents), ids=_list_ids(documents))


def _list_ids(documents: Sequence[Document]) -> list[str]:
    return [str(document.id) for document in documents]


def _list_found(retriever: CrabPathRetriever) -> list[str]:
    return sorted(_list_ids(retriever.invoke("1 0.1 0", k=9)))


@contextmanager
def _wrap(store: VectorStore, place: Path) -> Iterator[CrabPathRetriever]:
    """Wrap a store with four documents, which are passed along if the store cannot list them."""
    retriever = CrabPathRetriever.from_vectorstore(
        store,
        path=place,
        documents=None if find_kind(store).lists else OWNED,
        embeddings=None if store.embeddings is not None else NumberEmbeddings(),
    )
    with retriever.memory:
        yield retriever


def _refresh(
    retriever: CrabPathRetriever, store: VectorStore, present: Sequence[Document]
) -> IngestReport:
    """Refresh from a store; if it cannot list its documents, ``present`` ones are passed along."""
    return retriever.refresh(None if find_kind(store).lists else present)


class VectorStoreTests(VectorIndexTests):
    """Conformance of a LangChain ``VectorStore`` that a memory wraps or writes to.

    Subclass it, and override the fixture ``vectorstore``. The claims on vector indexes are checked
    with it too; those on filters are skipped where filters are in a language of the store's own.
    """

    @pytest.fixture
    def vectorstore(self) -> VectorStore:
        """An empty store that embeds with :class:`NumberEmbeddings`; to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def index(self, vectorstore: VectorStore) -> VectorStoreIndex:
        """The index of a memory over the store."""
        return VectorStoreIndex(vectorstore)

    @pytest.fixture
    def filterable(self, vectorstore: VectorStore) -> None:
        """Skip a claim on filters where they are in the language of the store."""
        if not find_kind(vectorstore).translates:
            pytest.skip("the filters of this store are in a language of its own")

    def test_a_wrapped_store_is_searched_under_its_own_ids(
        self, vectorstore: VectorStore, index: VectorStoreIndex, tmp_path: Path
    ) -> None:
        """The store is wrapped twice and asked in both ways; its content does not change."""
        _store_documents(vectorstore, OWNED)
        for _ in range(2):
            with _wrap(vectorstore, tmp_path / "m") as retriever:
                assert _list_found(retriever) == sorted(_list_ids(OWNED))
                found = asyncio.run(retriever.ainvoke("1 0.1 0", k=9))
                assert sorted(_list_ids(found)) == sorted(_list_ids(OWNED))
        assert sorted(search_ids(index, "1 0 0", 9)) == sorted(_list_ids(OWNED))

    def test_a_document_that_its_owner_deletes_is_no_longer_returned(
        self, vectorstore: VectorStore, index: VectorStoreIndex, tmp_path: Path
    ) -> None:
        """A store that looks up ids hides it at once, any other one from ``refresh`` on."""
        _store_documents(vectorstore, OWNED)
        with _wrap(vectorstore, tmp_path / "m") as retriever:
            vectorstore.delete(_list_ids(OWNED[:1]))
            if index.find_existing(_list_ids(OWNED)) is None:
                assert _refresh(retriever, vectorstore, OWNED[1:]).removed == 1
            assert _list_found(retriever) == sorted(_list_ids(OWNED[1:]))

    def test_a_refresh_takes_over_what_the_owner_changed(
        self, vectorstore: VectorStore, tmp_path: Path
    ) -> None:
        """The report counts the changes; a second refresh finds nothing to do."""
        _store_documents(vectorstore, OWNED)
        with _wrap(vectorstore, tmp_path / "m") as retriever:
            vectorstore.delete(_list_ids(OWNED[:2]))
            _store_documents(vectorstore, [CHANGED, NEW])
            present = [CHANGED, *OWNED[2:], NEW]
            report = _refresh(retriever, vectorstore, present)
            assert (report.added, report.updated, report.removed) == (1, 1, 1)
            assert _list_found(retriever) == sorted(_list_ids(present))
            texts = [document.page_content for document in retriever.invoke("1 0 1", k=9)]
            assert CHANGED.page_content in texts
            again = _refresh(retriever, vectorstore, present)
            assert (again.added, again.updated, again.removed, again.unchanged) == (0, 0, 0, 4)

    def test_a_memory_writes_to_the_store_that_it_is_given(
        self, vectorstore: VectorStore, index: VectorStoreIndex, tmp_path: Path
    ) -> None:
        """Added documents are in the store, and forgotten ones are not."""
        place, embedder = tmp_path / "m", NumberEmbeddings()
        with CrabPath.open(place, vectors=vectorstore, embeddings=embedder) as memory:
            memory.add_documents([*OWNED, NEW])
            assert sorted(search_ids(index, "1 0 0", 9)) == sorted(_list_ids([*OWNED, NEW]))
            memory.add_documents([CHANGED])
            assert search_ids(index, CHANGED.page_content, 1) == _list_ids([CHANGED])
            memory.forget(str(NEW.id))
            assert sorted(search_ids(index, "1 0 0", 9)) == sorted(_list_ids(OWNED))
