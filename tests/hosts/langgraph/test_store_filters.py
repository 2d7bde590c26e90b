"""Filters of the store: numbers in the vector index, exact beyond what floats hold, bounded."""

import time

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.store.base import PutOp

from crabpath_retrievers import CrabPath, InvalidInputError
from crabpath_retrievers.integration import to_plain
from langgraph_crabpath import CrabPathStore

pytestmark = pytest.mark.slow

PLACE = ("u", "ann")
NUMBERS = (0, 1, 2, 2.0, 2.5, -0.5, -3, True, 2**53, 2**53 + 1, -(2**60), 10**400, 1e300)


@pytest.fixture
def make_store(tmp_path):
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:

        def make(values):
            store = CrabPathStore(memory)
            store.batch([PutOp(PLACE, f"k{n}", value) for n, value in enumerate(values)])
            return store

        yield make


def find(store, wanted):
    listed = {item.key for item in store.search(PLACE, filter=wanted, limit=100)}
    found = {item.key for item in store.search(PLACE, query="note", filter=wanted, limit=100)}
    assert found == listed, wanted
    return found


def test_numbers_are_compared_as_python_does(make_store):
    """With a query, where the vector index filters, as without one."""
    store = make_store([{"text": f"note {n}", "n": n} for n in NUMBERS])
    compare = {
        "$eq": lambda one, other: one == other,
        "$ne": lambda one, other: one != other,
        "$gt": lambda one, other: one > other,
        "$lte": lambda one, other: one <= other,
    }
    for wanted in (2, 2.5, -0.5, 0, 2**53 + 1, 10**400, np.int64(2), np.float32(2.5)):
        for sign, holds in compare.items():
            expected = {
                f"k{place}"
                for place, own in enumerate(NUMBERS)
                if (sign == "$ne" if isinstance(own, bool) else holds(own, to_plain(wanted)))
            }
            assert find(store, {"n": {sign: wanted}}) == expected, (sign, wanted)
    assert find(store, {"n": {"$gte": 1, "$lt": 2.5}}) == {"k1", "k2", "k3"}
    assert find(store, {"n": True}) == {"k7"}
    assert find(store, {"n": {"$gt": True}}) == set()


def test_groups_and_lists_hold_as_in_the_filters_of_a_memory(make_store):
    """Nested too, and where no vector index knows a part of them."""
    colours = ["red", "red", "blue", "green"]
    values = [
        {"text": f"note {n}", "n": n, "colour": name, "size": {"cm": n}}
        for n, name in enumerate(colours)
    ]
    store = make_store([*values, {"text": "note"}])
    red, large, deep = {"colour": "red"}, {"n": {"$gt": 2}}, {"size": {"cm": 2}}
    for wanted, found in (
        ({"$or": [red, large]}, {"k0", "k1", "k3"}),
        ({"$and": [red, {"n": 1}]}, {"k1"}),
        ({"$or": [{"$and": [red, {"n": 1}]}, large]}, {"k1", "k3"}),
        ({"$or": [red, large], "n": {"$lt": 3}}, {"k0", "k1"}),
        ({"$or": [red, deep]}, {"k0", "k1", "k2"}),
        ({"$or": [red, {}]}, {"k0", "k1", "k2", "k3", "k4"}),
        ({"colour": {"$in": ["blue", "green"]}}, {"k2", "k3"}),
        ({"colour": {"$nin": ["blue", "green"]}}, {"k0", "k1", "k4"}),
        ({"size": {"cm": {"$in": [0, 3]}}}, {"k0", "k3"}),
        ({"n": {"$in": []}}, set()),
        ({"$or": []}, set()),
        ({"$and": []}, {"k0", "k1", "k2", "k3", "k4"}),
    ):
        assert find(store, wanted) == found, wanted


def test_values_of_numpy_are_kept_as_numbers(make_store):
    store = make_store([{"text": "note", "n": np.int64(3), "many": np.array([1, 2])}])
    assert store.get(PLACE, "k0").value == {"text": "note", "n": 3, "many": [1, 2]}
    assert find(store, {"n": np.float64(3), "many": np.array([1, 2])}) == {"k0"}


def test_operators_take_no_longer_than_twice_a_search_without(make_store):
    store = make_store([{"text": f"note {n} about topic {n % 13}", "n": n} for n in range(1000)])

    def measure(wanted):
        taken = []
        for _ in range(7):
            started = time.process_time()
            assert len(store.search(PLACE, query="topic 5", filter=wanted, limit=3)) == 3
            taken.append(time.process_time() - started)
        return min(taken)

    without = measure(None)
    for wanted in ({"n": {"$gt": 3}}, {"n": {"$gte": 3.5, "$ne": 9}}, {"n": {"$lt": 900}}):
        assert measure(wanted) < 2 * without + 0.005, wanted


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({f"f{n}": 1 for n in range(257)}, "at most 256 conditions"),
        ({"n": list(range(10_001))}, "at most 10,000 values"),
        ({"n": {"$near": 1}}, r"cannot filter with \$near"),
        ({"a": {"b": {"$near": 1}}}, r"cannot filter with \$near"),
        ({"n": {"$gt": 1, "x": 2}}, "cannot filter with x"),
        (["n"], "by a mapping"),
        ([], "by a mapping"),
        ({"$not": {"n": 1}}, r"cannot filter with \$not"),
        ({"$gt": 1}, "name a field first"),
        ({"$or": {"n": 1}}, "a list of such filters"),
        ({"$or": ["n"]}, "by a mapping"),
        ({"n": {"$in": 1}}, r"\$in .* needs a list"),
    ],
)
def test_what_is_no_filter_is_refused(make_store, wanted, sentence):
    store = make_store([{"text": "note", "n": 1}])
    for query in (None, "note"):
        with pytest.raises(InvalidInputError, match=sentence):
            store.search(PLACE, query=query, filter=wanted)
