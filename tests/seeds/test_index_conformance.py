"""What every vector index does, over Chroma embedded and served, and over LangChain stores."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from crabpath_retrievers.vectors import langchain_store
from crabpath_retrievers.vectors.chroma import ChromaIndex

# Seen from "1 0 0", nearest first: cosines 1, 1/√1.25 = .89, 1/√2 = .71 and 0.
FOUR = {"same": "1 0 0", "near": "1 0.5 0", "far": "1 1 0", "across": "0 0 1"}


def test_search_orders_by_cosine(backend):
    """Hits come nearest first, at most as many as asked for."""
    backend.put(dict(reversed(FOUR.items())))
    assert backend.ids("1 0 0", 3) == ["same", "near", "far"]


def test_length_of_the_query_does_not_matter(backend):
    """A query vector in another direction finds another record first."""
    backend.put(FOUR)
    assert backend.ids("0 0.1 9", 1) == ["across"]


def test_a_known_id_replaces_its_vector(backend):
    """Writing an id again moves it, and adds nothing."""
    backend.put(FOUR)
    backend.put({"same": "0 1 0"})
    assert backend.ids("0 1 0", 1) == ["same"]
    assert sorted(backend.ids("1 0 0", 10)) == sorted(FOUR)


def test_a_known_id_replaces_its_metadata(backend):
    """Metadata that a record has no longer does not match a filter any more."""
    backend.put({"a": "1 0 0"}, lang="en", year="2024")
    backend.put({"a": "1 0 0"}, year="2025")
    assert backend.ids("1 0 0", 5, backend.where("lang", "en")) == []
    assert backend.ids("1 0 0", 5, backend.where("year", "2025")) == ["a"]


def test_a_known_id_may_lose_all_metadata(backend):
    """A record that is written again without metadata matches no filter, and can be deleted."""
    backend.put({"a": "1 0 0"}, lang="en")
    backend.put({"a": "1 0 0"})
    assert backend.ids("1 0 0", 5, backend.where("lang", "en")) == []
    backend.put({"a": "0 1 0"})
    backend.index.delete(["a"])
    assert backend.ids("1 0 0", 5) == []


def test_delete_removes_only_what_is_named(backend):
    """Deleted ids are found no more; unknown ids among them are ignored."""
    backend.put(FOUR)
    backend.index.delete(["same", "never seen"])
    backend.index.delete(["never seen either"])
    backend.index.delete([])
    assert backend.ids("1 0 0", 10) == ["near", "far", "across"]


def test_filter_restricts_the_search(backend):
    """The k nearest are counted among the records that satisfy the condition."""
    backend.put({"a": "1 0 0", "b": "1 0.1 0"}, lang="en")
    backend.put({"c": "0 1 0", "d": "0.1 1 0"}, lang="de")
    assert backend.ids("1 0 0", 2, backend.where("lang", "de")) == ["d", "c"]
    assert backend.ids("1 0 0", 2, {}) == ["a", "b"]


def test_matching_tells_which_ids_satisfy_a_filter(backend):
    """Ids that fail the condition or are unknown drop out; without a condition all pass."""
    backend.put({"a": "1 0 0"}, lang="en")
    backend.put({"b": "0 1 0"}, lang="de")
    query, german = np.array([1, 0, 0], dtype=np.float32), backend.where("lang", "de")
    assert backend.index.filter_ids(["a", "b", "z"], query, german) == {"b"}
    assert backend.index.filter_ids([], query, german) == set()
    assert backend.index.filter_ids(["a", "z"], query, None) == {"a", "z"}


def test_more_records_than_one_write_takes(backend, monkeypatch):
    """Writes and deletions above the batch limit are cut up, and every record arrives."""
    monkeypatch.setattr(langchain_store, "_BATCH", 7)
    if isinstance(backend.index, ChromaIndex):
        backend.index._batch = 7
    records = {f"n{i}": f"1 {i} 0" for i in range(30)}
    backend.put(records, lang="en")
    backend.put(records, lang="de")
    assert set(backend.ids("1 0 0", 30, backend.where("lang", "de"))) == set(records)
    backend.index.delete([*list(records)[1:], "unknown"])
    assert backend.ids("1 9 0", 30) == ["n0"]


def test_k_above_the_number_of_records(backend):
    """Asking for more than there is returns what there is."""
    backend.put(FOUR)
    assert len(backend.ids("1 0 0", 50)) == 4


def test_an_empty_index_finds_nothing(backend):
    """Before anything is written, search, matching and deletion work and find nothing."""
    assert backend.ids("1 0 0", 3) == []
    query = np.array([1, 0, 0], dtype=np.float32)
    assert backend.index.filter_ids(["a"], query, backend.where("lang", "en")) == set()
    backend.index.delete(["a"])
    backend.index.upsert([], [], [], [])
    assert backend.ids("1 0 0", 3) == []


def test_awkward_metadata_does_not_stop_a_write(backend):
    """Values and keys that a store would refuse are left out, the others can be filtered by."""
    awkward = {
        "nested": {"a": 1},
        "none": None,
        "mixed": [1, "a"],
        "empty": [],
        "huge": 2**70,
        "huge list": [2**70],
        "nan": float("nan"),
        "nan list": [float("nan")],
        "": "no name",
        "#tag": "reserved",
        "$cost": "reserved",
        "chroma:document": "reserved",
    }
    backend.put({"a": "1 0 0"}, lang="en", **awkward)
    assert backend.ids("1 0 0", 5, backend.where("lang", "en")) == ["a"]


def test_threads_write_and_read_together(backend):
    """Several threads may write and search at once without losing a record."""
    # Points spread in all directions: on near-collinear ones HNSW itself leaves some unreachable,
    # whoever writes, and here the threads are under test.
    points = np.random.default_rng(0).normal(size=(8, 20, 32))

    def text(point):
        return " ".join(map(str, point))

    def work(number):
        backend.put({f"t{number}-{i}": text(point) for i, point in enumerate(points[number])})
        return len(backend.ids(text(points[0, 0]), 5))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(8)))
    assert found == [5] * 8
    everything = {f"t{number}-{i}" for number in range(8) for i in range(20)}
    assert set(backend.ids(text(points[0, 0]), 500)) == everything


def test_it_says_what_it_is(backend):
    """The description names the kind of store for people."""
    assert "Chroma" in backend.index.description or "InMemory" in backend.index.description


def test_it_tells_which_ids_it_holds(backend):
    """Those among the ids that are asked for, or that it cannot tell."""
    backend.put(FOUR)
    backend.index.delete(["far"])
    assert backend.index.find_existing(["same", "far", "never seen"]) in ({"same"}, None)
    assert backend.index.find_existing([]) in (set(), None)
