"""A memory as LangGraph's store: the same as LangGraph's own, but that it learns and keeps apart.

The cases of the first part are those of LangGraph's own tests of its stores, run over its
``InMemoryStore`` and over a memory: both must agree.
"""

import asyncio
from contextlib import ExitStack

import numpy as np
import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from crabpath_retrievers import CrabPath
from langgraph_crabpath import CrabPathStore

NAMESPACES = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b", "a", "f"),
    ("users", "123"),
    ("users", "456", "settings"),
    ("admin", "users", "789"),
]
FRUIT = {
    "doc1": {"text": "red apple", "color": "red", "score": 4.5},
    "doc2": {"text": "red car", "color": "red", "score": 3.0},
    "doc3": {"text": "green apple", "color": "green", "score": 4},
    "doc4": {"text": "blue car", "color": "blue", "score": 3.5},
}


@pytest.fixture
def make_store(request, embeddings, tmp_path):
    """Makes a store of a kind, which may have options."""
    with ExitStack() as stack:

        def make(kind, **options):
            if kind == "langgraph":
                index = {"dims": 384, "embed": embeddings, **options.get("index", {})}
                return InMemoryStore(index=index)
            given = {"path": tmp_path / "memory"}
            if kind == "postgresql":
                given = {"path": request.getfixturevalue("pgvector_url"), "vectors": "pgvector"}
            memory = stack.enter_context(CrabPath.open(**given, embeddings=embeddings))
            return CrabPathStore(memory, **options)

        yield make


@pytest.fixture(params=["langgraph", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def kind(request):
    return request.param


@pytest.fixture
def store(kind, make_store):
    """LangGraph's own store, and one over a memory on each database."""
    return make_store(kind)


@pytest.fixture
def own(make_store):
    """A store over a memory."""
    return make_store("sqlite")


def fill(store, values, namespace=("test",)):
    store.batch([PutOp(namespace, key, value) for key, value in values.items()])


def keys(found):
    return [item.key for item in found]


# What LangGraph's own tests say of a store.


def test_an_item_is_put_read_updated_and_deleted(store):
    namespace, value = ("test", "documents"), {"title": "Test", "n": [1, {"a": None}], "at": 1.0}
    store.put(namespace, "doc1", value)
    item = store.get(namespace, "doc1")
    assert isinstance(item, Item)
    assert (item.namespace, item.key, item.value) == (namespace, "doc1", value)
    store.put(namespace, "doc1", {"title": "Updated"})
    updated = store.get(namespace, "doc1")
    assert updated.value == {"title": "Updated"}
    assert updated.updated_at > item.updated_at
    assert store.get(("test", "other"), "doc1") is None
    assert store.get(("test",), "doc1") is None
    store.delete(namespace, "doc1")
    store.delete(namespace, "unknown")
    assert store.get(namespace, "doc1") is None
    assert store.search(namespace) == []


def test_a_batch_reads_first_and_keeps_the_order(store):
    store.put(("test", "foo"), "key1", {"data": "value1"})
    store.put(("test", "bar"), "key2", {"data": "value2"})
    found = store.batch(
        [
            GetOp(("test", "foo"), "key1"),
            PutOp(("test", "bar"), "key2", {"data": "new"}),
            SearchOp(("test",), filter={"data": "value1"}),
            ListNamespacesOp(),
            GetOp(("test",), "key3"),
            GetOp(("test", "bar"), "key2"),
            PutOp(("test",), "key3", {"data": "value3"}),
            PutOp(("test",), "key3", {"data": "value4"}),
            PutOp(("test", "foo"), "key1", None),
            SearchOp(("test",), query="value2", limit=1),
        ]
    )
    assert found[0].value == {"data": "value1"}
    assert keys(found[2]) == ["key1"]
    assert found[3] == [("test", "bar"), ("test", "foo")]
    assert found[5].value == {"data": "value2"}
    assert [found[n] for n in (1, 4, 6, 7, 8)] == [None] * 5
    assert keys(found[9]) == ["key2"]
    assert store.get(("test", "bar"), "key2").value == {"data": "new"}
    assert store.get(("test",), "key3").value == {"data": "value4"}
    assert store.get(("test", "foo"), "key1") is None


def test_namespaces_are_listed(store):
    for number, namespace in enumerate(NAMESPACES):
        store.put(namespace, f"id_{number}", {"data": f"value {number}"}, index=False)
    named = store.list_namespaces
    assert named() == sorted(NAMESPACES)
    below = [space for space in NAMESPACES if space[:2] == ("a", "b")]
    assert named(prefix=("a", "b")) == below
    assert named(prefix=("a", "b"), max_depth=3) == sorted({space[:3] for space in below})
    assert named(prefix=("a", "b"), limit=2) == below[:2]
    assert named(prefix=("a", "b"), limit=5, offset=2) == below[2:]
    assert named(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
    assert named(prefix=("a",), suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert named(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert named(suffix=("*", "f")) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
    assert named(prefix=("*", "users"), suffix=("*", "settings")) == []
    assert named(prefix=("nonexistent",)) == named(prefix=("user",)) == []
    assert named(max_depth=1) == [("a",), ("admin",), ("b",), ("users",)]
    several = (MatchCondition("prefix", ("a",)), MatchCondition("prefix", ("*", "c")))
    assert store.batch([ListNamespacesOp(several)]) == [[("a", "c", "f")]]


def test_a_namespace_has_labels(store):
    for wrong in [(), ("the", "thing.about"), ("some", ""), ("langgraph", "foo")]:
        with pytest.raises(InvalidNamespaceError):
            store.put(wrong, "foo", {"foo": "bar"})
    store.batch([PutOp(("langgraph", "foo"), "bar", {"foo": "bar"})])  # past the public methods
    assert store.get(("langgraph", "foo"), "bar").value == {"foo": "bar"}
    assert keys(store.search(("langgraph", "foo"))) == ["bar"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"color": "red"}, ["doc1", "doc2"]),
        ({"color": {"$eq": "red"}}, ["doc1", "doc2"]),
        ({"color": {"$ne": "red"}}, ["doc3", "doc4"]),
        ({"score": 3}, ["doc2"]),
        ({"score": {"$gt": 3.2}}, ["doc1", "doc3", "doc4"]),
        ({"score": {"$gte": 4.0}, "color": "green"}, ["doc3"]),
        ({"score": {"$gte": 3, "$lt": 4}}, ["doc2", "doc4"]),
        ({"score": {"$lte": 3.5}}, ["doc2", "doc4"]),
        ({"color": "none"}, []),
        ({"missing": None}, ["doc1", "doc2", "doc3", "doc4"]),
        ({"missing": {"$ne": 1}}, ["doc1", "doc2", "doc3", "doc4"]),
        ({}, ["doc1", "doc2", "doc3", "doc4"]),
    ],
)
def test_a_filter_holds_with_a_query_and_without(store, wanted, found):
    fill(store, FRUIT)
    assert sorted(keys(store.search(("test",), filter=wanted))) == found
    assert sorted(keys(store.search(("test",), query="apple", filter=wanted))) == found


def test_a_filter_looks_into_values(store):
    values = {
        "one": {"text": "one", "meta": {"lang": "en", "tags": ["x", "y"]}, "tags": ["a"]},
        "two": {"text": "two", "meta": {"lang": "de"}, "tags": ["a", "b"]},
        "three": {"text": "three", "meta": "none", "a.b": "c"},
    }
    fill(store, values)
    for wanted, found in [
        ({"meta": {"lang": "en"}}, ["one"]),
        ({"meta": {"tags": ["x", "y"]}}, ["one"]),
        ({"tags": ["a", "b"]}, ["two"]),
        ({"tags": []}, []),
        ({"a.b": "c"}, ["three"]),
    ]:
        assert keys(store.search(("test",), filter=wanted)) == found
        assert keys(store.search(("test",), query="one", filter=wanted)) == found


def test_the_best_item_comes_first_with_its_score(store):
    fill(store, FRUIT)
    found = store.search(("test",), query="a red car", limit=4)
    assert found[0].key == "doc2"
    assert max(found, key=lambda item: item.score) == found[0]
    assert store.search(("test",), query="apple", filter={"color": "red"})[0].key == "doc1"
    assert all(item.score is None for item in store.search(("test",)))


def test_pages_follow_each_other(store):
    fill(store, {f"doc{n}": {"text": f"test document number {n}"} for n in range(5)})
    everything = keys(store.search(("test",), query="test", limit=10))
    assert len(everything) == 5
    pages = [store.search(("test",), query="test", limit=2, offset=n) for n in (0, 2, 4)]
    assert [key for page in pages for key in keys(page)] == everything
    assert keys(store.search(("test",), limit=2, offset=1)) == ["doc1", "doc2"]
    assert store.search(("test",), limit=0) == store.search(("test",), offset=5) == []


@pytest.mark.parametrize("query", ["", None, "test " * 100, "test!@#$%^&*()"])
def test_any_query_finds(store, query):
    store.put(("test",), "doc1", {"text": "test document"})
    assert keys(store.search(("test",), query=query)) == ["doc1"]


def test_an_update_changes_what_is_found(store):
    fill(store, {"doc1": {"text": "zany zebra Xerxes"}, "doc2": {"text": "text about birds"}})
    assert store.search(("test",), query="zany Xerxes")[0].key == "doc1"
    store.put(("test",), "doc1", {"text": "the weather in March"})
    store.put(("test",), "doc3", {"text": "zany Xerxes"}, index=False)
    found = store.search(("test",), query="birds", limit=2)
    assert keys(found) == ["doc2", "doc1"]
    assert keys(store.search(("test",), query="weather in March", limit=1)) == ["doc1"]


def test_an_item_that_is_not_indexed_is_listed(store):
    store.put(("test",), "doc1", {"text": "apple"}, index=False)
    store.put(("test",), "doc2", {"n": None}, index=["text"])
    assert store.get(("test",), "doc1").value == {"text": "apple"}
    assert sorted(keys(store.search(("test",), filter={"n": None}))) == ["doc1", "doc2"]
    assert [item.score for item in store.search(("test",), query="apple")] == [None, None]
    store.put(("test",), "doc3", {"text": "apple"})
    found = store.search(("test",), query="apple")
    assert keys(found) == ["doc3", "doc1", "doc2"]
    assert [item.score for item in found] == [pytest.approx(found[0].score), None, None]
    assert keys(store.search(("test",), query="apple", limit=1)) == ["doc3"]
    assert keys(store.search(("test",), query="apple", filter={"n": None, "text": "apple"})) == [
        "doc3",
        "doc1",
    ]


def test_fields_choose_what_is_searched(kind, make_store):
    store = make_store(kind, index={"fields": ["text", "parts[*].said"]})
    tea, rain = "Green tea helps against sleep", "It rains in Hamburg"
    store.put(("test",), "tea", {"text": tea, "note": rain})
    store.put(("test",), "rain", {"parts": [{"said": rain}, {"said": "often"}], "note": tea})
    store.put(("test",), "note", {"text": "x", "note": "Bread is baked at night"}, index=["note"])
    assert store.search(("test",), query="tea against sleep")[0].key == "tea"
    assert store.search(("test",), query="rains in Hamburg")[0].key == "rain"
    assert store.search(("test",), query="bread baked")[0].key == "note"


@pytest.mark.parametrize("query", ["apple", "blue sky", "yes", "Which fruit is red?"])
def test_the_score_is_the_cosine(store, embeddings, query):
    store.put(("test",), "doc", {"text": "apple", "more": "none"}, index=["text", "missing"])
    (found,) = store.search((), query=query)
    assert found.score == pytest.approx(cosine(embeddings, query, "apple"), abs=1e-3)


def cosine(embeddings, one, other):
    """Cosine of two texts."""
    one, other = np.array(embeddings.embed_documents([one, other]))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_each_field_has_a_vector_and_the_best_one_counts(kind, make_store):
    store = make_store(kind, index={"fields": ["name", "food", "city"]})
    store.put(("test",), "ann", {"name": "Ann Able", "hidden": "chess club", "city": "Hamburg"})
    store.put(("test",), "bob", {"name": "Bob Baker", "food": "noodle soup", "city": "Ann Able"})
    found = store.search(("test",), query="Ann Able")
    assert sorted(keys(found)) == ["ann", "bob"]
    assert [item.score for item in found] == [pytest.approx(1, abs=1e-3)] * 2
    first, last = store.search(("test",), query="noodle soup")
    assert (first.key, last.key) == ("bob", "ann")
    assert first.score == pytest.approx(1, abs=1e-3)
    assert last.score < 0.9
    other = store.search(("test",), query="chess club")
    assert all(item.score < 0.9 for item in other)


def test_a_put_may_name_other_fields(kind, make_store):
    store = make_store(kind, index={"fields": ["unused"]})
    store.put(("test",), "one", {"a": "green tea", "b": "bread", "c": "rain"}, index=["a", "b"])
    store.put(("test",), "two", {"a": "coal", "b": "bread", "d": "snow"}, index=["b", "d"])
    assert [item.key for item in store.search(("test",), query="green tea")] == ["one", "two"]
    assert [item.key for item in store.search(("test",), query="snow")] == ["two", "one"]
    both = store.search(("test",), query="bread")
    assert both[0].score == pytest.approx(both[1].score)
    assert all(item.score < 0.9 for item in store.search(("test",), query="rain"))


def test_a_hostile_filter_finds_what_it_says(store):
    """Keys and values are data wherever they go."""
    fill(store, {"one": {"access": "public"}, "two": {"access": "private", "name": "O'Brien"}})
    for wanted in [
        {"access') = 'public' OR '1'='1' OR json_extract(value, '$.": "x"},
        {"access": "public' OR '1'='1"},
        {"access": "public'; --"},
        {"access": "public\x00' OR 'א'='א"},
        {"access": "'" * 4},
    ]:
        assert store.search(("test",), filter=wanted) == []
        assert store.search(("test",), query="access", filter=wanted) == []
    assert keys(store.search(("test",), filter={"name": "O'Brien"})) == ["two"]


def test_a_prefix_ends_with_a_label(store):
    """Whatever pattern languages make of its signs, in searches and in lists."""
    pairs = [("star*", "starX"), ("q?m", "qXm"), ("br[ack]et", "brXacXket"), ("a%b", "axxb")]
    pairs += [("user_1", "userX1"), ("foo", "foobar"), ("Foo", "foo"), ("line", "line\n")]
    for label in {label for pair in pairs for label in pair}:
        for space in ((label,), (label, "child"), ("in", label)):
            store.put(space, "k", {"v": 1})
    for label, _ in pairs:
        below = [(label,), (label, "child")]
        assert sorted(item.namespace for item in store.search((label,), limit=100)) == below
        found = store.search((label,), query="1", limit=100)
        assert sorted(item.namespace for item in found) == below
        assert store.list_namespaces(prefix=(label, "child")) == below[1:]
        assert store.list_namespaces(suffix=(label,)) == sorted([(label,), ("in", label)])
    everything = {item.namespace for item in store.search((), limit=1000)}
    assert everything == {*store.list_namespaces(limit=1000)}


def test_every_script_is_found(store):
    said = {"1": "这是中文", "2": "これは日本語です", "3": "Это русский", "4": "यह रूसी है"}
    fill(store, {key: {"text": text} for key, text in said.items()}, ("user_123", "memories"))
    for key, text in said.items():
        assert store.search(("user_123", "memories"), query=text)[0].key == key


async def test_every_method_can_be_awaited(store):
    await asyncio.gather(*(store.aput(("test",), key, value) for key, value in FRUIT.items()))
    await store.adelete(("test",), "doc4")
    assert (await store.aget(("test",), "doc1")).value == FRUIT["doc1"]
    assert await store.aget(("test",), "doc4") is None
    assert await store.alist_namespaces(prefix=("test",)) == [("test",)]
    found = await asyncio.gather(
        store.asearch(("test",), query="apple", filter={"color": "red"}),
        store.asearch(("test",), filter={"score": {"$gt": 3.2}}),
    )
    assert keys(found[0]) == ["doc1", "doc2"]
    assert sorted(keys(found[1])) == ["doc1", "doc3"]
