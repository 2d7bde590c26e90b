"""What a LangChain store must offer, and what is said when it does not."""

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers.errors import ConfigurationError, StoreError
from crabpath_retrievers.vectors.langchain_store import VectorStoreIndex

X = np.array([1, 0], dtype=np.float32)


class StrictStore(InMemoryVectorStore):
    """A store like FAISS: it refuses known ids on writing and unknown ones on deletion."""

    def __init__(self):
        super().__init__(DeterministicFakeEmbedding(size=2))

    def add_documents(self, documents, ids=None, **kwargs):
        if set(ids) & set(self.store):
            msg = "tried to add ids that already exist"
            raise ValueError(msg)
        return super().add_documents(documents, ids, **kwargs)

    def delete(self, ids=None, **kwargs):
        for node_id in ids:
            del self.store[node_id]


class PoorStore(StrictStore):
    """A store that cannot look documents up, search by vector or delete."""

    def get_by_ids(self, ids, /):
        raise NotImplementedError

    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        raise NotImplementedError

    def delete(self, ids=None, **kwargs):
        raise NotImplementedError


class NamelessStore(StrictStore):
    """A store whose documents do not carry their ids."""

    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        return [Document("text")]


def test_a_store_that_is_strict_about_ids_can_be_updated():
    theirs = StrictStore()
    index = VectorStoreIndex(theirs)
    index.upsert(["a", "b"], [X, X], ["one", "two"], [{}, {}])
    index.upsert(["b", "c"], [X, X], ["2", "3"], [{}, {}])
    index.delete(["a", "unknown"])
    assert {key: record["text"] for key, record in theirs.store.items()} == {"b": "2", "c": "3"}


@pytest.mark.parametrize(
    ("store", "call", "error", "message"),
    [
        (PoorStore, lambda i: i.search(X, 1), ConfigurationError, "PoorStore cannot search by"),
        (PoorStore, lambda i: i.delete(["a"]), ConfigurationError, "PoorStore cannot delete"),
        (
            PoorStore,
            lambda i: i.upsert(["a"], [X], ["one"], [{}]),
            StoreError,
            "PoorStore failed: tried to add ids that already exist",
        ),
        (NamelessStore, lambda i: i.search(X, 1), ConfigurationError, "documents without ids"),
    ],
)
def test_what_a_store_cannot_do_is_said(store, call, error, message):
    index = VectorStoreIndex(store())
    index.upsert(["a"], [X], ["one"], [{}])
    with pytest.raises(error, match=message):
        call(index)
