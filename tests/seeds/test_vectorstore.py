"""What a LangChain store must offer, and what is said when it does not."""

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers.errors import ConfigurationError, StoreError
from crabpath_retrievers.vectors.langchain_store import VectorStoreIndex

X = np.array([1, 0], dtype=np.float32)


class Theirs(InMemoryVectorStore):
    """A store like FAISS: it refuses known ids on writing and unknown ones on deletion."""

    def __init__(self):
        """Start empty."""
        super().__init__(DeterministicFakeEmbedding(size=2))

    def add_documents(self, documents, ids=None, **kwargs):
        """Refuse ids that are known."""
        if set(ids) & set(self.store):
            msg = "tried to add ids that already exist"
            raise ValueError(msg)
        return super().add_documents(documents, ids, **kwargs)

    def delete(self, ids=None, **kwargs):
        """Refuse ids that are unknown."""
        for node_id in ids:
            del self.store[node_id]


class Silent(Theirs):
    """A store that cannot look documents up, search by vector or delete."""

    def get_by_ids(self, ids, /):
        """Not offered."""
        raise NotImplementedError

    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        """Not offered."""
        raise NotImplementedError

    def delete(self, ids=None, **kwargs):
        """Not offered."""
        raise NotImplementedError


def test_a_store_that_is_strict_about_ids_can_be_updated():
    """Known ids are replaced and unknown ones ignored, whatever the store makes of them."""
    theirs = Theirs()
    index = VectorStoreIndex(theirs)
    index.upsert(["a", "b"], [X, X], ["one", "two"], [{}, {}])
    index.upsert(["b", "c"], [X, X], ["2", "3"], [{}, {}])
    index.delete(["a", "unknown"])
    assert {key: record["text"] for key, record in theirs.store.items()} == {"b": "2", "c": "3"}


def test_what_a_store_lacks_is_said():
    """Searching by vector and deleting name the store and what is missing."""
    index = VectorStoreIndex(Silent())
    index.upsert(["a"], [X], ["one"], [{}])
    with pytest.raises(ConfigurationError, match="Silent cannot search by vector"):
        index.search(X, 1)
    with pytest.raises(ConfigurationError, match="Silent cannot delete"):
        index.delete(["a"])


def test_a_failing_store_is_a_store_error():
    """Errors of the foreign library arrive as one of the project's, with its words."""
    index = VectorStoreIndex(Silent())
    index.upsert(["a"], [X], ["one"], [{}])
    with pytest.raises(StoreError, match="Silent failed: tried to add ids that already exist"):
        index.upsert(["a"], [X], ["one"], [{}])


def test_hits_without_ids_are_refused():
    """A store whose documents do not carry their ids cannot be joined with the graph."""

    class Nameless(Theirs):
        def similarity_search_by_vector(self, embedding, k=4, **kwargs):
            return [Document("text")]

    with pytest.raises(ConfigurationError, match="documents without ids"):
        VectorStoreIndex(Nameless()).search(X, 1)
