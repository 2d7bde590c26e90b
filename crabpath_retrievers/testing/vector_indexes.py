"""Claims that hold for every vector index, and an embedder whose texts are vectors."""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from crabpath_retrievers.core.metadata import make_test, parse_filter
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import CrabPathError, EmbeddingMismatchError, InvalidInputError
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.embedder import to_unit_vector

WIDTH = 32
"""Dimension of all vectors, for stores that need to know it before the first document."""


class NumberEmbeddings(Embeddings):
    """Reads a vector off a text such as ``"1 0 0.5"``, so that every index sees the same ones.

    What is missing up to :data:`WIDTH` is zero. Texts that are no numbers get vectors of their own.
    """

    def embed_query(self, text: str) -> list[float]:
        """Embed one text."""
        try:
            numbers: list[float] = to_unit_vector([float(word) for word in text.split()]).tolist()
        except ValueError:
            return DeterministicFakeEmbedding(size=WIDTH).embed_query(text)
        return numbers + [0.0] * (WIDTH - len(numbers))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return [self.embed_query(text) for text in texts]


# Seen from "1 0 0", nearest first: cosines 1, 1/√1.25 = .89, 1/√2 = .71 and 0.
FOUR = {"same": "1 0 0", "near": "1 0.5 0", "far": "1 1 0", "across": "0 0 1"}
X = np.eye(WIDTH, dtype=np.float32)[0]  # "1 0 0"

HOSTILE = ['a" or 1 == 1 or "', "a' OR '1'='1", "back\\", 'both\\" or "" == "', "line\nend", "ü€😀"]
RECORDS: Mapping[str, dict[str, Any]] = {
    "en": {"lang": "en", "year": 2020, "open": True},
    "de": {"lang": "de", "year": 2021, "open": False, "share": 0.5},
    "bare": {},
    "late": {"lang": "fr", "year": 2024, "share": 0.25},
    **{f"h{n}": {"lang": value} for n, value in enumerate(HOSTILE)},
}
OF_SEVERAL_KINDS: list[dict[str, Any]] = [
    {"open": {"$in": [np.False_, 2020, "en"]}},
    {"year": {"$in": ["2020", 2021, 2024.0, True]}},
    {"lang": {"$nin": ["en", 1, 0.5, False]}},
]
CONDITIONS: list[dict[str, Any]] = [
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
REFUSED: list[tuple[dict[str, Any], str]] = [
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
DATED = {"team": "a", "on": "2024-05-31", "grade": "four"}
REFUSED_FOR_TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"on": {"$gt": 20220101}}, "'on' .* beside it as a number, {'day': 20240531}"),
    ({"$or": [{"on": {"$lte": 2030}}, {"grade": {"$lt": 2}}]}, "'on' "),
    ({"team": "a", "on": {"$gte": 3, "$ne": "5"}}, "'on' with a number, .*: keep its day"),
    ({"$and": [{"on": {"$lt": 99}}, {"team": {"$in": ["a"]}}]}, "'on' "),
]
NOTHING_FOUND: list[dict[str, Any]] = [
    {"team": "b", "price": {"$gt": 5}},  # it has a number
    {"team": "c", "on": {"$gt": 1}},  # nobody has it
    {"unknown": {"$gt": 1}},
    {"team": "d"},
    {"$or": [], "on": {"$gt": 1}},
]


def add_records(index: VectorIndex, records: Mapping[str, str], **metadata: Any) -> None:
    """Upsert texts of numbers under ids, all with the same metadata."""
    texts = list(records.values())
    index.upsert(list(records), [*map(_read_vector, texts)], texts, [metadata for _ in records])


def search_ids(index: VectorIndex, text: str, k: int, condition: Any = None) -> list[str]:
    """Search from a text of numbers for at most k ids; each is found once."""
    found = index.search(_read_vector(text), k, condition)
    texts = all(isinstance(each, str) for each in found)
    assert texts, f"search must return the ids alone, without scores, and returned {found}"
    assert len(found) <= k, f"search returned {len(found)} ids for k={k}: return at most k"
    assert len({*found}) == len(found), f"search returned {found}: ids are repeated"
    return found


def _read_vector(text: str) -> Vector:
    return to_unit_vector(NumberEmbeddings().embed_query(text))


def _add_all_records(index: VectorIndex) -> None:
    for number, (node_id, metadata) in enumerate(RECORDS.items()):
        add_records(index, {node_id: f"1 {number} 0"}, **metadata)


def _select_records(condition: dict[str, Any]) -> set[str]:
    """Select the ids of the records that satisfy a condition."""
    holds = make_test(parse_filter(condition, "the test"))
    return {node for node, metadata in RECORDS.items() if holds(metadata)}


def _ask_with(index: VectorIndex, ids: Sequence[str], condition: Any) -> list[partial[Any]]:
    """Return calls of both methods that take a filter."""
    return [
        partial(index.search, X, 50, condition),
        partial(index.filter_ids, ids, X, condition),
    ]


def _require_refused(
    ask: partial[Any], sign: str, what: object, expected: type[Exception] = InvalidInputError
) -> None:
    """Require that a call raises an error whose message has a sign, a regular expression."""
    name = f"{ask.func.__name__} with {what}"
    said = None
    try:
        found = ask()
    except expected as error:
        said = str(error)
    assert said is not None, f"{name} must raise {expected.__name__}, and returned {found}"
    assert re.search(sign, said), f"the message of {name} must say {sign!r}: {said}"


def _require_selected(index: VectorIndex, condition: dict[str, Any], what: str) -> None:
    expected = _select_records(condition)
    for ask in _ask_with(index, [*RECORDS, "unknown"], condition):
        found, name = set(ask()), ask.func.__name__
        more, less = sorted(found - expected), sorted(expected - found)
        assert not more, f"{name} with {what} must not return {more}, which do not satisfy it"
        assert not less, f"{name} with {what} must return {less} as well, which satisfy it"


def _make_largest_filter(operator: str, *, of_several_kinds: bool) -> dict[str, Any]:
    """Make a filter with 256 conditions for a group operator, 10,000 values for a list operator."""
    if operator in {"$or", "$and"}:
        signs = [("$ne", "$gt", "$lt", "$eq")[number % 4] for number in range(256)]
        return {operator: [{"year": {s: 2020 + n % 5 + 0.5}} for n, s in enumerate(signs)]}
    others = [True, 0.5, *range(2021, 7000)] if of_several_kinds else []
    words = [f"word {n}" for n in range(9_999 - len(others))]
    return {"$and": [{"lang": {operator: ["en", *others, *words]}}, {"year": {"$gt": 0}}]}


class VectorIndexTests:
    """Conformance of a :class:`~crabpath_retrievers.vectors.base.VectorIndex`.

    Subclass it, and override the fixture ``index``. Claims on filters are skipped for an index
    without ``reads_filters``, which must refuse them.
    """

    @pytest.fixture
    def index(self) -> VectorIndex:
        """An empty index for vectors of :data:`WIDTH` numbers; to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def batched_index(self, index: VectorIndex) -> VectorIndex:
        """The index, if possible with writes of fewer than 30 records."""
        return index

    @pytest.fixture
    def mixes_kinds(self) -> bool:
        """Whether one condition may compare a key with texts, numbers and booleans."""
        return True

    @pytest.fixture
    def filterable(self, index: VectorIndex) -> None:
        """Skip a claim on filters if the index has none."""
        if not index.reads_filters:
            pytest.skip("the index reads no filters")

    @pytest.fixture
    def memory(self, index: VectorIndex, tmp_path: Path) -> Iterator[CrabPath]:
        """An empty memory over the index."""
        embedder = DeterministicFakeEmbedding(size=WIDTH)
        with CrabPath.open(tmp_path / "memory", vectors=index, embeddings=embedder) as opened:
            yield opened

    def test_search_orders_by_cosine(self, index: VectorIndex) -> None:
        """A search finds at most k; the length of the query vector does not matter."""
        add_records(index, dict(reversed(FOUR.items())))
        found = search_ids(index, "1 0 0", 3)
        assert found == ["same", "near", "far"], "search must return the nearest first"
        assert search_ids(index, "0 0.1 9", 1) == ["across"], "search must return the nearest first"
        assert len(search_ids(index, "1 0 0", 50)) == 4, "search returns all where k is larger"
        assert index.description, "description is a text that is not empty"

    def test_a_search_ahead_finds_what_each_search_would(self, index: VectorIndex) -> None:
        """Searching ahead ends with its block: vectors added later are found."""
        add_records(index, FOUR)
        several = [*np.eye(WIDTH, dtype=np.float32)[:3]]
        alone = [index.search(vector, 2) for vector in several]
        with index.search_ahead(several, 2):
            ahead = [index.search(vector, 2) for vector in several]
            assert ahead == alone, "inside search_ahead a search finds what it finds outside"
            assert len(search_ids(index, "1 0 0", 3)) == 3, (
                "inside search_ahead another k is answered, too"
            )
        with index.search_ahead([], 2):
            assert index.search(X, 2) == alone[0], "search_ahead of nothing changes no search"
        add_records(index, {"nearest": "1 0.01 0"})
        found = search_ids(index, "1 0 0", 2)
        assert found == ["same", "nearest"], (
            "after search_ahead new records are found, nearest first"
        )

    def test_a_known_id_replaces_its_vector(self, index: VectorIndex) -> None:
        """The id is found once, near its new vector, and can be deleted."""
        add_records(index, FOUR)
        add_records(index, {"same": "0 1 0"})
        (nearest,) = search_ids(index, "0 1 0", 1)
        said = "search must return the nearest first, and upsert replaces the vector of an id"
        assert nearest == "same", said
        found = search_ids(index, "1 0 0", 10)
        assert sorted(found) == sorted(FOUR), "an id that was upserted twice is found once"
        index.delete(["same"])
        assert "same" not in search_ids(index, "1 0 0", 5), "a deleted id is found no longer"

    @pytest.mark.usefixtures("filterable")
    def test_a_known_id_replaces_its_metadata(self, index: VectorIndex) -> None:
        """A filter matches only the new metadata of a record, not its former ones."""
        add_records(index, FOUR, lang="en", year="2024")
        assert search_ids(index, "1 0 0", 5, {"lang": "de"}) == [], (
            "search must not ignore a filter"
        )
        add_records(index, {"same": "0 1 0"}, year="2025")
        english = search_ids(index, "1 0 0", 5, {"lang": "en"})
        assert "same" not in english, "upsert drops metadata that a record has no longer"
        found = search_ids(index, "1 0 0", 5, {"year": "2025"})
        assert found == ["same"], "a filter reads the metadata of the last upsert"
        add_records(index, {"same": "1 0 0"})
        found = search_ids(index, "1 0 0", 5, {"year": "2025"})
        assert found == [], "upsert without metadata drops those there were"

    def test_delete_removes_only_what_is_named(self, index: VectorIndex) -> None:
        """Unknown ids are ignored; the index tells which ids it holds, if it can."""
        add_records(index, FOUR)
        for ids in (["same", "never seen"], ["never seen either"], []):
            index.delete(ids)
        left = search_ids(index, "1 0 0", 10)
        assert sorted(left) == ["across", "far", "near"], (
            "delete removes the named ids and no others"
        )
        found = index.find_existing(["near", "same", "never seen"])
        assert found in ({"near"}, None), "find_existing returns a set of the ids held, or None"
        assert index.find_existing([]) in (set(), None), "find_existing of nothing is empty"

    def test_it_counts_and_lists_what_it_holds(self, index: VectorIndex) -> None:
        """An index that cannot count says -1; one that cannot list yields no page of ids."""
        add_records(index, FOUR)
        assert index.count() in (4, -1), "count is the number of records, or -1"
        listed = {*chain.from_iterable(index.ids())}
        assert listed in ({*FOUR}, set()), "ids yields lists of all ids, or nothing"

    @pytest.mark.usefixtures("filterable")
    def test_a_filter_restricts_the_search(self, index: VectorIndex) -> None:
        """The k nearest are those among the records that satisfy the condition."""
        add_records(index, {"a": "1 0 0", "b": "1 0.1 0"}, lang="en")
        add_records(index, {"c": "0 1 0", "d": "0.1 1 0"}, lang="de")
        german = {"lang": "de"}
        found = search_ids(index, "1 0 0", 2, german)
        assert {"c", "d"}.issuperset(found), "search must not ignore a filter"
        assert len(found) == 2, "search counts k among the records that satisfy the filter"
        assert found == ["d", "c"], "search with a filter must return the nearest first"
        found = search_ids(index, "1 0 0", 4, {})
        assert sorted(found) == list("abcd"), "an empty filter is none"
        selected = index.filter_ids(["a", "c", "z"], X, german)
        assert selected == {"c"}, "filter_ids returns a set of the ids that satisfy the filter"
        assert index.filter_ids([], X, german) == set(), "filter_ids of no ids is an empty set"
        selected = index.filter_ids(["a", "z"], X, None)
        assert selected == {"a", "z"}, "filter_ids without a filter returns all its ids"

    def test_no_filter_is_ignored(self, index: VectorIndex) -> None:
        """A filter that no record satisfies finds nothing; an index without filters refuses it."""
        add_records(index, FOUR, lang="en")
        for ask in _ask_with(index, [*FOUR], {"lang": "none"}):
            if not index.reads_filters:
                _require_refused(ask, "", "a filter, which it does not read")
                continue
            with suppress(CrabPathError):  # some stores have filters of other kinds alone
                assert not ask(), f"{ask.func.__name__} ignores a filter: it returns {ask()}"

    @pytest.mark.usefixtures("filterable")
    def test_more_records_than_one_write_takes(self, batched_index: VectorIndex) -> None:
        """All records are written, replaced and deleted."""
        records = {f"n{i}": f"1 {i} 0" for i in range(30)}
        add_records(batched_index, records, lang="en")
        add_records(batched_index, records, lang="de")
        german = set(search_ids(batched_index, "1 0 0", 30, {"lang": "de"}))
        assert german == set(records), "upsert writes and replaces any number of records"
        batched_index.delete([*list(records)[1:], "unknown"])
        assert search_ids(batched_index, "1 9 0", 30) == ["n0"], "delete takes any number of ids"

    def test_an_empty_index_finds_nothing(self, index: VectorIndex) -> None:
        """Deleting from an empty index and writing nothing into it are no errors."""
        assert search_ids(index, "1 0 0", 3) == [], "search of an empty index is an empty list"
        if index.reads_filters:
            found = index.filter_ids(["a"], X, {"lang": "en"})
            assert found == set(), "filter_ids of an empty index is an empty set"
        index.delete(["a"])
        index.upsert([], [], [], [])

    def test_threads_write_and_read_together(self, index: VectorIndex) -> None:
        """No write is lost, and every search is answered."""
        # Points spread in all directions: on near-collinear ones HNSW itself leaves some
        # unreachable, whoever writes, and here the threads are under test.
        points = np.random.default_rng(0).normal(size=(8, 20, WIDTH))
        texts = [[" ".join(map(str, point)) for point in own] for own in points]

        def write_and_read(number: int) -> int:
            add_records(index, {f"t{number}-{i}": text for i, text in enumerate(texts[number])})
            return len(search_ids(index, texts[0][0], 5))

        with ThreadPoolExecutor(4) as pool:
            counts = list(pool.map(write_and_read, range(8)))
        assert counts == [5] * 8, "search finds k records while other threads write"
        everything = {f"t{number}-{i}" for number in range(8) for i in range(20)}
        found = set(search_ids(index, texts[0][0], 500))
        assert found == everything, "what several threads upsert at once is all kept"

    @pytest.mark.usefixtures("filterable")
    def test_it_finds_what_a_condition_says(self, index: VectorIndex, *, mixes_kinds: bool) -> None:
        """Texts have no order with numbers; records without the key satisfy only negations."""
        _add_all_records(index)
        for condition in CONDITIONS:
            if condition in OF_SEVERAL_KINDS and not mixes_kinds:
                (search, _) = _ask_with(index, (), condition)
                _require_refused(search, "values of one kind", condition)
                continue
            _require_selected(index, condition, f"the filter {condition}")

    @pytest.mark.usefixtures("filterable")
    def test_what_is_no_condition_is_refused(self, index: VectorIndex) -> None:
        """The error is one sentence, even if the store would have accepted the condition."""
        add_records(index, {"a": "1 0 0"}, lang="en", year=1)
        for condition, sign in REFUSED:
            for ask in _ask_with(index, ["a"], condition):
                _require_refused(ask, sign, condition)

    @pytest.mark.usefixtures("filterable")
    @pytest.mark.parametrize("operator", ["$in", "$nin", "$or", "$and"])
    def test_the_largest_filters_are_answered(
        self, index: VectorIndex, operator: str, *, mixes_kinds: bool
    ) -> None:
        """10,000 values of several kinds, or 256 conditions, are no more than a store takes."""
        _add_all_records(index)
        condition = _make_largest_filter(operator, of_several_kinds=mixes_kinds)
        _require_selected(index, condition, f"the largest filter with {operator}")

    @pytest.mark.usefixtures("filterable")
    def test_dates_as_texts_compared_with_numbers_are_no_empty_answer(
        self, memory: CrabPath
    ) -> None:
        """A memory asked for dates after 20220101 says that the dates are texts."""
        for content, metadata in (("1 0 0", DATED), ("1 1 0", {"team": "b", "price": 4})):
            memory.add_documents([Document(content, metadata=metadata)])
        for condition, sign in REFUSED_FOR_TEXTS:
            _require_refused(partial(memory.retrieve, "1 0 0", filter=condition), sign, condition)
        for condition in NOTHING_FOUND:
            found = memory.retrieve("1 0 0", filter=condition).documents
            assert found == (), f"no document satisfies {condition}"
        found = memory.retrieve("1 0 0", filter={"price": {"$gt": 3}}).documents
        assert len(found) == 1, "a number is compared with a number"

    def test_a_vector_of_another_dimension(self, index: VectorIndex) -> None:
        """The index refuses the vector in one sentence, and still answers."""
        add_records(index, {"a": "1 0 0"})
        other = partial(index.search, np.eye(7, dtype=np.float32)[0], 1)
        _require_refused(other, "dimension", "a vector of 7 numbers", EmbeddingMismatchError)
        assert search_ids(index, "1 0 0", 1) == ["a"], "after an error it answers as before"

    def test_ids_are_texts_of_any_kind(self, index: VectorIndex) -> None:
        """Ids with quotes, numbers, UUIDs and long ids come back unchanged."""
        ids = [*HOSTILE, "17", "017", "5b1c4a2e-6d0f-5c7e-9a43-2f8d1e7b9c60", "x" * 200]
        add_records(index, {node_id: f"1 {n} 0" for n, node_id in enumerate(ids)})
        found = set(search_ids(index, "1 0 0", 50))
        assert found == set(ids), "ids come back as they were given, whatever text they are"
        known = index.find_existing([*ids, "18"])
        assert known in (set(ids), None), "find_existing compares whole ids"
        index.delete(ids[1:])
        assert search_ids(index, "1 0 0", 50) == ids[:1], "delete compares whole ids"
