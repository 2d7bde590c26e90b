"""Filters are one language: every store finds what the condition says, or refuses it."""

import re
from pathlib import Path

import numpy as np
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.soak.chroma_process import ChromaServer
from crabpath_retrievers import CrabPath, InvalidInputError, StoreUnavailableError
from crabpath_retrievers.core.filters import make_test, parse_filter
from crabpath_retrievers.errors import EmbeddingMismatchError
from crabpath_retrievers.integration import Query
from crabpath_retrievers.vectors.filters import to_chroma, to_milvus, to_postgres
from crabpath_retrievers.vectors.langchain_store import VectorStoreIndex
from crabpath_retrievers.vectors.pgvector import PgVectorIndex
from crabpath_retrievers.vectors.store_kinds import StoreKind, find_kind

HOSTILE = ['a" or 1 == 1 or "', "a' OR '1'='1", "back\\", 'both\\" or "" == "', "line\nend", "ü€😀"]
RECORDS = {
    "en": {"lang": "en", "year": 2020, "open": True},
    "de": {"lang": "de", "year": 2021, "open": False, "share": 0.5},
    "bare": {},
    "late": {"lang": "fr", "year": 2024, "share": 0.25},
    **{f"h{n}": {"lang": value} for n, value in enumerate(HOSTILE)},
}
OF_SEVERAL_KINDS = [
    {"open": {"$in": [np.False_, 2020, "en"]}},
    {"year": {"$in": ["2020", 2021, 2024.0, True]}},
    {"lang": {"$nin": ["en", 1, 0.5, False]}},
]
CONDITIONS = [
    {"lang": "de"},
    {"lang": {"$ne": "en"}},
    {"year": 2021},
    {"year": {"$ne": 2021}},
    {"year": {"$gt": 2020}},
    {"year": {"$gte": 2020, "$lt": 2024}},
    {"year": {"$lte": 2021}},
    {"share": 0.5},
    {"share": {"$lt": 0.4}},
    {"open": True},
    {"share": {"$ne": 0.5}},
    {"year": 2020.5},
    {"year": {"$ne": 2020.5}},
    {"year": {"$gte": 2020.5}},
    {"year": {"$gt": -0.5, "$lt": 2020.7}},
    {"year": {"$in": [2020.5, 2021]}},
    {"year": {"$nin": [2020.5, 2021]}},
    {"year": np.int64(2021), "share": np.float32(0.5)},
    *OF_SEVERAL_KINDS,
    {"lang": "e\x00n"},
    {"lang": {"$in": []}},
    {"lang": {"$nin": []}},
    {"$or": []},
    {"$and": []},
    {"lang": "en", "$and": [{"$or": []}, {"year": 2020}]},
    {"$or": [{"year": {"$in": []}}, {"lang": "de"}, {"$and": [{"$or": []}]}]},
    {"lang": {"$in": ["en", "fr"]}},
    {"lang": {"$nin": ["en", "fr"]}},
    {"year": {"$in": [2020, 2024]}},
    {"lang": "en", "year": 2020},
    {"lang": "en", "year": 2021},
    {"$and": [{"lang": "en"}, {"year": {"$lt": 2024}}]},
    {"$or": [{"lang": "en"}, {"$and": [{"lang": "fr"}, {"year": {"$gte": 2024}}]}]},
    *({"lang": value} for value in HOSTILE),
    *({"lang": {"$in": [value, "none"]}} for value in HOSTILE),
]
REFUSED = [
    ({"year": {"$near": 1}}, r"\$near"),
    ({"$not": [{"year": 1}]}, r"\$not"),
    ({"lang": None}, "None is none of them"),
    ({"lang": {"$in": ["en", None]}}, r"\$in on 'lang'"),
    ({"year": {"$gt": "many"}}, r"\$gt|many"),
    ({"year": 2**63}, "a finite number of at most 64 bits"),
    ({"year": float("nan")}, "a finite number"),
    ({"year": {"$gt": float("inf")}}, "a finite number"),
    ({"lang": ["en", "fr"]}, r"several values use \$in"),
    ({"year": {"$in": "text"}}, "a list"),
]


def test_every_store_finds_what_a_condition_says(backend):
    """A text is never more than a text; records without a key satisfy only negations."""
    for number, (node_id, metadata) in enumerate(RECORDS.items()):
        backend.put({node_id: f"1 {number} 0"}, **metadata)
    for condition in CONDITIONS:
        parsed = parse_filter(condition, "the test")
        if "PGVectorStore" in backend.index.description and condition in OF_SEVERAL_KINDS:
            with pytest.raises(InvalidInputError, match="values of one kind"):
                backend.ids("1 0 0", 50, condition)
            continue
        expected = {node for node, metadata in RECORDS.items() if make_test(parsed)(metadata)}
        assert set(backend.ids("1 0 0", 50, condition)) == expected, condition
        found = backend.index.filter_ids([*RECORDS, "unknown"], None, condition)
        assert found == expected, condition


def test_what_is_no_condition_is_refused(backend):
    """In one sentence, whatever the store would have made of it."""
    backend.put({"a": "1 0 0"}, lang="en", year=1)
    for condition, sign in REFUSED:
        with pytest.raises(InvalidInputError, match=sign):
            backend.ids("1 0 0", 5, condition)
        with pytest.raises(InvalidInputError, match=sign):
            backend.index.filter_ids(["a"], None, condition)


@pytest.mark.parametrize("operator", ["$in", "$nin", "$or", "$and"])
def test_the_largest_filters_are_answered(backend, operator):
    """10,000 values of several kinds, or 256 conditions, are no more than a store takes."""
    for number, (node_id, metadata) in enumerate(RECORDS.items()):
        backend.put({node_id: f"1 {number} 0"}, **metadata)
    values = ["en", True, 0.5, *range(2021, 7000), *(f"word {n}" for n in range(5018))]
    if "PGVectorStore" in backend.index.description:
        values = ["en", *(f"word {n}" for n in range(9_999))]
    assert len(values) == 10_000
    compared = [("$ne", "$gt", "$lt", "$eq")[number % 4] for number in range(256)]
    conditions = [{"year": {sign: 2020 + n % 5 + 0.5}} for n, sign in enumerate(compared)]
    groups = {"$or": {"$or": conditions}, "$and": {"$and": conditions}}
    both = {"$and": [{"lang": {operator: values}}, {"year": {"$gt": 0}}]}
    condition = groups.get(operator, both)
    holds = make_test(parse_filter(condition, "the test"))
    expected = {node for node, metadata in RECORDS.items() if holds(metadata)}
    assert set(backend.ids("1 0 0", 50, condition)) == expected
    assert backend.index.filter_ids(list(RECORDS), None, condition) == expected


TEXTS = [
    ({"on": {"$gt": 20220101}}, "'on' .* beside it as a number, {'day': 20240531}"),
    ({"$or": [{"on": {"$lte": 2030}}, {"grade": {"$lt": 2}}]}, "'on' "),
    ({"team": "a", "on": {"$gte": 3, "$ne": "5"}}, "'on' with a number, .*: keep its day"),
    ({"$and": [{"on": {"$lt": 99}}, {"team": {"$in": ["a"]}}]}, "'on' "),
]
NOTHING_FOUND = [
    {"team": "b", "price": {"$gt": 5}},  # it has a number
    {"team": "c", "on": {"$gt": 1}},  # nobody has it
    {"unknown": {"$gt": 1}},
    {"team": "d"},
    {"$or": [], "on": {"$gt": 1}},
]


def test_dates_as_texts_compared_with_numbers_are_no_empty_answer(tmp_path, backend, request):
    """Whoever asks for dates after 20220101 hears that the dates are texts, in every store."""
    place, vectors = tmp_path / "m", backend.index
    if isinstance(vectors, PgVectorIndex):
        place, vectors = request.getfixturevalue("pgvector_url"), "pgvector"
    embedder = DeterministicFakeEmbedding(size=32)
    with CrabPath.open(place, vectors=vectors, embeddings=embedder) as memory:
        text = {"team": "a", "on": "2024-05-31", "grade": "four"}
        for content, metadata in (("1 0 0", text), ("1 1 0", {"team": "b", "price": 4})):
            memory.add_documents([Document(content, metadata=metadata)])
        for condition, sign in TEXTS:
            with pytest.raises(InvalidInputError, match=sign):
                memory.retrieve("1 0 0", filter=condition)
        for condition in NOTHING_FOUND:
            assert memory.retrieve("1 0 0", filter=condition).documents == ()
        assert len(memory.retrieve("1 0 0", filter={"price": {"$gt": 3}}).documents) == 1


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


def test_a_vector_of_another_dimension(backend):
    """The store says so, and still answers."""
    backend.put({"a": "1 0 0"})
    with pytest.raises(EmbeddingMismatchError, match="dimension"):
        backend.index.search(np.eye(7, dtype=np.float32)[0], 1)
    assert backend.ids("1 0 0", 1) == ["a"]


def test_ids_are_texts_of_any_kind(backend):
    """Quotes, numbers, UUIDs and long ones come back as they were given, and alone."""
    ids = [*HOSTILE, "17", "017", "5b1c4a2e-6d0f-5c7e-9a43-2f8d1e7b9c60", "x" * 200]
    backend.put({node_id: f"1 {n} 0" for n, node_id in enumerate(ids)})
    assert set(backend.ids("1 0 0", 50)) == set(ids)
    assert backend.index.find_existing([*ids, "18"]) in (set(ids), None)
    backend.index.delete(ids[1:])
    assert backend.ids("1 0 0", 50) == ids[:1]


@pytest.mark.parametrize("key", ["a b", 'a" or 1 == 1 or "b', "or", "a.b", "a'b", ""])
def test_keys_that_are_no_names_are_refused(key):
    condition = parse_filter({key: 1}, "the test")
    if not key:
        with pytest.raises(InvalidInputError, match=r"^Chroma cannot filter by the key"):
            to_chroma(condition)
    with pytest.raises(InvalidInputError, match=r"^Milvus cannot filter by the key"):
        to_milvus(condition)
    if not key.isidentifier():
        with pytest.raises(InvalidInputError, match=r"^PGVectorStore cannot filter by the key"):
            to_postgres(condition)


ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| (\w+) \| ([^|]+) \| (\w+) \| (\w+) \| (\w+) \|")


def test_the_table_says_what_the_kinds_can_do(backend):
    """Each store of the conformance tests has its row."""
    if backend.store is None:
        pytest.skip("the table is about LangChain stores")
    kind = find_kind(backend.store)
    page = Path(__file__).parents[2] / "docs" / "how-to" / "wrap-your-store.md"
    rows = {m[1]: m.groups()[2:] for m in map(ROW.match, page.read_text("utf-8").splitlines()) if m}
    (name,) = [each.__name__ for each in type(backend.store).__mro__ if each.__name__ in rows]
    yes = {True: "yes", False: "no"}
    native, _, *others = rows[name]
    assert native == ("native" if kind.native_async else "threads")
    assert others == [yes[kind.deletes_by_filter], yes[kind.scores], yes[kind.lists]]
    assert type(kind) in StoreKind.__subclasses__()
    assert len(rows) == len(StoreKind.__subclasses__())
    assert kind.scores


@pytest.mark.slow
def test_a_store_whose_server_dies(tmp_path):
    """Each operation says that it cannot be reached."""
    started = ChromaServer(tmp_path)
    store = Chroma("dying", DeterministicFakeEmbedding(size=3), client=started.client())
    index = VectorStoreIndex(store)
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
    started.disconnect()
