"""Filters have bounds, and keys that a store cannot name are refused; a store may be gone."""

import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath, InvalidInputError, StoreUnavailableError
from crabpath_retrievers.integration import Query

EMBEDDINGS = DeterministicFakeEmbedding(size=3)


def _nest(depth):
    condition = {"year": 1}
    for _ in range(depth - 1):
        condition = {"$and": [condition, {"lang": "en"}]}
    return condition


@pytest.mark.parametrize(
    ("condition", "bound"),
    [
        ({"$or": [{"year": n} for n in range(257)]}, "256 conditions"),
        ({"year": dict.fromkeys(map(str, range(300)), 1)}, "256 conditions"),
        ({"$or": [{}] * 300}, "256 conditions"),
        ({"year": {"$in": list(range(10_001))}}, "10,000 values"),
        ({"year": {"$in": {*range(10_001)}}}, "10,000 values"),
        ({"$or": [{"year": {"$nin": list(range(5001))}}] * 2}, "10,000 values"),
        (_nest(17), "16 nested levels"),
        (_nest(20_000), "16 nested levels"),
    ],
)
def test_larger_filters_are_refused_with_the_bound(condition, bound):
    """Before any store sees them, in whatever language they are."""
    with pytest.raises(InvalidInputError, match=f"at most {bound}"):
        Query.from_options("a question", filter=condition)


def test_the_bounds_themselves_are_legal():
    for condition in (
        {"$or": [{"year": n} for n in range(256)]},
        {"year": {"$in": list(range(10_000))}},
        _nest(16),
    ):
        assert Query.from_options("a question", filter=condition).filter == condition


@pytest.mark.slow
@pytest.mark.parametrize("key", ["a b", 'a" or 1 == 1 or "b', "or", "a.b", "a'b", ""])
def test_keys_that_are_no_names_are_refused(key):
    """Before a store is asked; it is known by the name of its class."""
    stores = [type("Milvus", (InMemoryVectorStore,), {})(EMBEDDINGS)]
    if not key:
        stores.append(Chroma("refusing", EMBEDDINGS))
    if not key.isidentifier():
        stores.append(type("PGVectorStore", (InMemoryVectorStore,), {})(EMBEDDINGS))
    for store in stores:
        refused = f"^{type(store).__name__} cannot filter by the key"
        with (
            CrabPath.open(vectors=store, embeddings=EMBEDDINGS) as memory,
            pytest.raises(InvalidInputError, match=refused),
        ):
            memory.index.search(np.eye(3, dtype=np.float32)[0], 1, {key: 1})


@pytest.mark.slow
def test_a_store_whose_server_dies(tmp_path):
    """Each operation says that it cannot be reached."""
    started = ChromaServer(tmp_path)
    store = Chroma("dying", EMBEDDINGS, client=started.client())
    memory = CrabPath.open(vectors=store, embeddings=EMBEDDINGS)
    index = memory.index
    vector = np.eye(3, dtype=np.float32)[0]
    index.upsert(["a"], [vector], ["a text"], [{"lang": "en"}])
    assert index.search(vector, 1, {"lang": "en"}) == ["a"]
    assert index.find_existing(["a"]) == {"a"}
    started.stop()
    for call in (
        lambda: index.search(vector, 1),
        lambda: index.search(vector, 1, {"lang": "en"}),
        lambda: index.filter_ids(["a"], vector, {"lang": "en"}),
        lambda: index.find_existing(["a"]),
        lambda: index.upsert(["b"], [vector], ["another"], [{}]),
        lambda: index.delete(["a"]),
    ):
        with pytest.raises(StoreUnavailableError, match="LangChain Chroma cannot be reached"):
            call()
    memory.close()
    started.disconnect()
