"""A kind for a vector store of an author's own, with public names alone."""

from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.integration import Group, StoreKind
from crabpath_retrievers.testing import NumberEmbeddings, VectorStoreTests

SIGNS = {"$eq": eq, "$ne": ne, "$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


class Shelf(VectorStore):
    """A store from scratch: it reads filters as nested lists, and deletes only what it has."""

    def __init__(self):
        self.rows = {}

    @property
    def embeddings(self):
        return NumberEmbeddings()

    @classmethod
    def from_texts(cls, *_, **__):
        raise NotImplementedError

    def add_documents(self, documents, *, ids):
        for node, document in zip(ids, documents, strict=True):
            vector = np.asarray(self.embeddings.embed_query(document.page_content))
            self.rows[node] = (vector / np.linalg.norm(vector), document.page_content, document)

    def delete(self, ids):
        for node in ids:
            del self.rows[node]

    def get_by_ids(self, ids, /):
        return [self._show(node) for node in ids if node in self.rows]

    def similarity_search(self, query, k=4):
        raise NotImplementedError

    def similarity_search_by_vector(self, vector, k, where=()):
        rows = {node: row for node, row in self.rows.items() if self._holds(where, row[2].metadata)}
        near = sorted(rows, key=lambda node: -float(rows[node][0] @ np.asarray(vector)))
        return [self._show(node) for node in near[:k]]

    def _show(self, node):
        _, text, document = self.rows[node]
        return Document(text, id=node, metadata=document.metadata)

    def _holds(self, where, metadata):
        if not where:
            return True
        if where[0] in (all, any):
            return where[0](self._holds(part, metadata) for part in where[1])
        compare, key, value = where
        own = metadata.get(key)
        comparable = isinstance(own, bool) == isinstance(value, bool) and (
            isinstance(own, str) == isinstance(value, str) and own is not None
        )
        return compare(own, value) if comparable else compare is ne


class ShelfKind(StoreKind, of="Shelf"):
    """Filters as the shelf reads them; its documents are listed."""

    is_single_threaded = True

    def translate(self, condition):
        if isinstance(condition, Group):
            decide = all if condition.operator == "$and" else any
            return [decide, [self.translate(part) for part in condition.parts]]
        key, operator, value = condition
        if operator in ("$in", "$nin"):
            decide, compare = (any, eq) if operator == "$in" else (all, ne)
            return [decide, [[compare, key, each] for each in value]]
        return [SIGNS[operator], key, value]

    def make_arguments(self, condition):
        return {"where": condition}

    def documents(self):
        yield from self.store.get_by_ids([*self.store.rows])


class TestShelf(VectorStoreTests):
    """All claims on stores, filters and listing among them."""

    @pytest.fixture
    def vectorstore(self):
        return Shelf()


class OwnedShelf(Shelf):
    """A subclass of the class that a kind names."""


@pytest.mark.slow
def test_a_kind_is_that_of_subclasses(tmp_path):
    """The store lists its documents, and reads filters."""
    shelf = OwnedShelf()
    documents = [Document("1 0 0", metadata={"row": 1}), Document("0 1 0", metadata={"row": 2})]
    shelf.add_documents(documents, ids=["a", "b"])
    with CrabPathRetriever.from_vectorstore(shelf, path=tmp_path / "m").memory as memory:
        found = memory.retrieve("1 0 0", filter={"row": {"$gt": 1}})
        assert [each.node.id for each in found.documents] == ["b"]
