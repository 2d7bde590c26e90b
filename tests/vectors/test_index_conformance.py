"""What every vector index does: Chroma embedded and served, pgvector, and LangChain stores."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from crabpath_retrievers.vectors import langchain_store
from crabpath_retrievers.vectors.chroma import ChromaIndex
from tests.seams import get_collection

# Seen from "1 0 0", nearest first: cosines 1, 1/√1.25 = .89, 1/√2 = .71 and 0.
FOUR = {"same": "1 0 0", "near": "1 0.5 0", "far": "1 1 0", "across": "0 0 1"}
X = np.eye(32, dtype=np.float32)[0]  # "1 0 0", with as many dimensions as the stores have


def test_search_orders_by_cosine(backend):
    """At most k, and no more than there are; the length of a query does not matter."""
    backend.put(dict(reversed(FOUR.items())))
    assert backend.ids("1 0 0", 3) == ["same", "near", "far"]
    assert backend.ids("0 0.1 9", 1) == ["across"]
    assert len(backend.ids("1 0 0", 50)) == 4
    assert backend.index.description.startswith(("Chroma", "LangChain ", "pgvector"))


def test_a_search_ahead_finds_what_each_search_would(backend):
    """It ends with its block: what is added later is found."""
    backend.put(FOUR)
    several = [*np.eye(32, dtype=np.float32)[:3]]
    alone = [backend.index.search(vector, 2) for vector in several]
    with backend.index.search_ahead(several, 2):
        assert [backend.index.search(vector, 2) for vector in several] == alone
        assert len(backend.index.search(X, 3)) == 3
    with backend.index.search_ahead([], 2):
        assert backend.index.search(X, 2) == alone[0]
    backend.put({"nearest": "1 0.01 0"})
    assert backend.ids("1 0 0", 2) == ["same", "nearest"]


def test_a_known_id_replaces_its_vector_and_metadata(backend):
    """Metadata that a record has no longer does not match a filter any more."""
    backend.put(FOUR, lang="en", year="2024")
    backend.put({"same": "0 1 0"}, year="2025")
    assert backend.ids("0 1 0", 1) == ["same"]
    assert sorted(backend.ids("1 0 0", 10)) == sorted(FOUR)
    assert "same" not in backend.ids("1 0 0", 5, {"lang": "en"})
    assert backend.ids("1 0 0", 5, {"year": "2025"}) == ["same"]
    backend.put({"same": "1 0 0"})
    assert backend.ids("1 0 0", 5, {"year": "2025"}) == []
    backend.index.delete(["same"])
    assert "same" not in backend.ids("1 0 0", 5)


def test_delete_removes_only_what_is_named(backend):
    """Unknown ids are ignored; it tells which ids it holds, where it can."""
    backend.put(FOUR)
    for ids in (["same", "never seen"], ["never seen either"], []):
        backend.index.delete(ids)
    assert backend.ids("1 0 0", 10) == ["near", "far", "across"]
    assert backend.index.find_existing(["near", "same", "never seen"]) in ({"near"}, None)
    assert backend.index.find_existing([]) in (set(), None)


def test_filter_restricts_the_search(backend):
    """The k nearest are counted among the records that satisfy the condition."""
    backend.put({"a": "1 0 0", "b": "1 0.1 0"}, lang="en")
    backend.put({"c": "0 1 0", "d": "0.1 1 0"}, lang="de")
    german = {"lang": "de"}
    assert backend.ids("1 0 0", 2, german) == ["d", "c"]
    assert backend.ids("1 0 0", 2, {}) == ["a", "b"]
    assert backend.index.filter_ids(["a", "c", "z"], X, german) == {"c"}
    assert backend.index.filter_ids([], X, german) == set()
    assert backend.index.filter_ids(["a", "z"], X, None) == {"a", "z"}


def test_more_records_than_one_write_takes(backend, monkeypatch):
    monkeypatch.setattr(langchain_store, "_BATCH", 7)
    if isinstance(backend.index, ChromaIndex):
        backend = replace(backend, index=ChromaIndex(get_collection(backend.index), batch=7))
    records = {f"n{i}": f"1 {i} 0" for i in range(30)}
    backend.put(records, lang="en")
    backend.put(records, lang="de")
    assert set(backend.ids("1 0 0", 30, {"lang": "de"})) == set(records)
    backend.index.delete([*list(records)[1:], "unknown"])
    assert backend.ids("1 9 0", 30) == ["n0"]


def test_an_empty_index_finds_nothing(backend):
    assert backend.ids("1 0 0", 3) == []
    assert backend.index.filter_ids(["a"], X, {"lang": "en"}) == set()
    backend.index.delete(["a"])
    backend.index.upsert([], [], [], [])


def test_threads_write_and_read_together(backend):
    # Points spread in all directions: on near-collinear ones HNSW itself leaves some unreachable,
    # whoever writes, and here the threads are under test.
    points = np.random.default_rng(0).normal(size=(8, 20, 32))

    def text(point):
        return " ".join(map(str, point))

    def work(number):
        backend.put({f"t{number}-{i}": text(point) for i, point in enumerate(points[number])})
        return len(backend.ids(text(points[0, 0]), 5))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [5] * 8
    everything = {f"t{number}-{i}" for number in range(8) for i in range(20)}
    assert set(backend.ids(text(points[0, 0]), 500)) == everything
