"""Regions are the same with every store and in every order; what is no region is refused."""

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import (
    CrabPath,
    EmbeddingMismatchError,
    Feedback,
    InvalidInputError,
    NotFoundError,
    Settings,
)
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.records import compute_hub_level
from tests.seams import get_services

VECTORS = DeterministicFakeEmbedding(size=16)
TEXTS = {f"n{i}": f"Sentence {i}" for i in range(110)}
HUBS = {node for node in TEXTS if compute_hub_level(node) >= 1}
LATE = next(f"late{i}" for i in range(1000) if compute_hub_level(f"late{i}") == 1)


def make_documents(ids):
    return [Document(TEXTS.get(node, node), id=node) for node in ids]


def open_over(place, **given):
    """A memory with vectors that mean nothing."""
    given.setdefault("vectors", InMemoryVectorStore(VECTORS))
    return CrabPath.open(place, embeddings=VECTORS, **given)


@pytest.fixture
def memory(location):
    """110 sentences, once on each database."""
    with open_over(location) as made:
        made.add_documents(make_documents(TEXTS))
        yield made


@pytest.fixture(scope="module")
def expected():
    """The region of every sentence, by a plain search for the most similar hub."""
    stored = {node: np.array(VECTORS.embed_query(text)) for node, text in TEXTS.items()}
    unit = {node: vector / np.linalg.norm(vector) for node, vector in stored.items()}
    return {
        node: max(HUBS, key=lambda hub: float(vector @ unit[hub])) for node, vector in unit.items()
    }


@pytest.mark.both_databases
def test_every_chunk_is_in_the_region_of_its_nearest_hub(memory, expected):
    """As a search by hand says, for the node, its vector and its text; hubs lie in their own."""
    assert set(expected.values()) == HUBS == {hub for hub in HUBS if expected[hub] == hub}
    assert memory.regions.assignments() == memory.regions.assignments(1) == expected
    stored = memory.store.catalog.vectors(list(TEXTS))
    assert {node: memory.regions.assign(vector) for node, vector in stored.items()} == expected
    assert {node: memory.regions.assign(text) for node, text in TEXTS.items()} == expected
    sizes = {
        level: sum(compute_hub_level(node) >= level for node in TEXTS)
        for level in range(1, 1 + max(map(compute_hub_level, TEXTS)))
    }
    assert memory.store.regions.sizes() == sizes


@pytest.mark.parametrize("index", [None, InMemoryVectorStore(VECTORS)], ids=["chroma", "langchain"])
def test_neither_index_nor_order_nor_batches_matter(tmp_path, expected, index):
    ids = np.random.default_rng(9).permutation(list(TEXTS)).tolist()
    with open_over(tmp_path, vectors=index) as memory:
        for start in range(0, len(ids), 40):
            memory.add_documents(make_documents(ids[start : start + 40]))
        assert memory.regions.assignments() == expected


@pytest.mark.both_databases
def test_a_new_hub_takes_over_what_is_nearer_to_it_and_hands_it_back(memory):
    before = memory.regions.assignments()
    memory.add_documents(make_documents([LATE]))
    after = memory.regions.assignments()
    stored = {n: v.astype(float) for n, v in memory.store.catalog.vectors([*TEXTS, LATE]).items()}
    for node in TEXTS:
        nearer = stored[node] @ stored[LATE] > stored[node] @ stored[before[node]]
        assert after[node] == (LATE if nearer else before[node])
    assert LATE in {after[node] for node in TEXTS}
    memory.forget(LATE)
    assert memory.regions.assignments() == before


class ByTopic(DeterministicFakeEmbedding):
    """Texts about ships lie on one side, all others on the other."""

    def embed_query(self, text):
        return [50.0 if "ship" in text.lower() else -50.0, *super().embed_query(text)]

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


@pytest.mark.both_databases
def test_words_tell_a_region_from_the_others(location):
    """As they are written; not those that all regions have, nor frequent ones."""
    topics = ("The Ships of harbour {}", "An apple of harbour {}")
    embeddings = ByTopic(size=15)
    vectors = InMemoryVectorStore(embeddings)
    with CrabPath.open(location, embeddings=embeddings, vectors=vectors) as memory:
        memory.add_documents(
            [Document(topics[i % 2].format(i), id=node) for i, node in enumerate(TEXTS)]
        )
        regions = [one for one in memory.regions.map().regions if one.size]
        assert len(regions) > 2
        for region in regions:
            (word,) = region.words[:1]
            about = memory.get_by_ids([region.region])[0].page_content
            assert word == ("Ships" if "Ships" in about else "apple")
            assert not {"harbour", "The", "of"} & set(region.words)


def test_a_text_that_changes_moves_its_node(memory):
    node = next(n for n in TEXTS if n not in HUBS)
    hub = next(h for h in HUBS if h != memory.regions.assignments()[node])

    def region():
        (head,) = memory.store.walk.get_nodes([node])
        return get_services(memory).regions.of_nodes([head.key], [head.vector], 1)[head.key]

    (home,) = memory.store.walk.get_nodes([hub])
    assert region() != home.key
    memory.add_documents([Document(TEXTS[hub], id=node)])
    assert region() == home.key
    assert memory.regions.assignments()[node] == hub


def test_another_memory_on_the_store_notices_new_hubs(memory, location):
    then = memory.store.regions.version()
    with open_over(location) as other:
        before = other.regions.assign(LATE)
        memory.add_documents(make_documents([LATE]))
        assert other.regions.assign(LATE) == LATE != before
        regions = get_services(other).regions
        assert LATE in regions.hubs(1, then).ids  # a query that began before asks with its version
        now = memory.store.regions.version()
        assert regions.hubs(1, then) is regions.hubs(1, now)
        assert now != then
        memory.forget(LATE)
        assert other.regions.assign(LATE) == before


def test_only_hubs_of_the_corpus_change_the_version(memory):
    """What else comes and goes, notes of any id among it, costs nobody a reading of the hubs."""
    before, version = memory.regions.assignments(), memory.store.regions.version()
    plain = next(f"plain{i}" for i in range(100) if not compute_hub_level(f"plain{i}"))
    memory.add_documents(make_documents([plain]))
    memory.forget(plain)
    for node in (LATE, "plain"):
        memory.teach(f"A fact about {node}.", id=node, namespace="ann")
    assert memory.regions.assignments() == before
    memory.forget([LATE, "plain"])
    assert memory.store.regions.version() == version
    memory.add_documents(make_documents([LATE]))
    assert memory.store.regions.version() > version


@pytest.mark.parametrize("most", [len(HUBS), len(HUBS) - 1])
def test_levels_of_too_many_hubs_are_not_counted(tmp_path, most):
    """Equal hubs leave their region to the older one."""
    chosen = Settings().replace(region=RegionSettings(max_hubs=most))
    with open_over(tmp_path, settings=chosen) as memory:
        memory.add_documents(make_documents(TEXTS))
        assert (1 in memory.regions.levels()) == (most == len(HUBS))
        assert set(memory.regions.assignments(1)) == set(TEXTS)
        memory.forget(list(TEXTS))
        assert memory.regions.levels() == ()
        first, second = [f"twin{i}" for i in range(500) if compute_hub_level(f"twin{i}")][:2]
        memory.add_documents([Document("the same", id=node) for node in (first, second)])
        assert memory.regions.assignments(1) == {first: first, second: first}


def test_a_query_survives_hubs_that_go_meanwhile(memory):
    version, vector = memory.store.regions.version(), memory.embedder.query("anything")
    assert get_services(memory).regions.levels(version) == (1,)
    memory.forget(list(TEXTS))
    assert get_services(memory).regions.places(vector, version) == ((0, 0),)


@pytest.mark.parametrize(
    ("level", "error", "words"),
    [
        (9, NotFoundError, "level 9 has no hub: use one of 1"),
        (0, InvalidInputError, "level must be a whole number from 1 to 1000000, not 0"),
        (True, InvalidInputError, "not True"),
        ("1", InvalidInputError, "not '1'"),
    ],
)
def test_levels_that_are_none(atlas, level, error, words):
    ask = atlas.regions
    for call in (lambda: ask.assign("text", level), lambda: ask.assignments(level)):
        with pytest.raises(error, match=words):
            call()
    with pytest.raises(error, match=words):
        ask.mdp(level)


@pytest.mark.parametrize(
    ("vector", "error", "words"),
    [
        ([1.0, 0.0], EmbeddingMismatchError, "has 2 dimensions, the memory 16"),
        ([float("nan")] * 16, InvalidInputError, "must be a finite vector"),
        ([0.0] * 16, InvalidInputError, "not all zero"),
        (np.ones((16, 16)), InvalidInputError, "must be a finite vector"),
        (" \n", InvalidInputError, "a text must not be empty"),
    ],
)
def test_vectors_and_texts_that_are_none(atlas, vector, error, words):
    with pytest.raises(error, match=words):
        atlas.regions.assign(vector)
    known = set(atlas.regions.assignments().values())
    assert {atlas.regions.assign(t) for t in ("a\x00b", "\ud83d", "検索 🦀")} <= known


def test_small_memories_have_no_regions(tmp_path):
    vectors = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": vectors, "vectors": InMemoryVectorStore(vectors)}
    with CrabPath.open(tmp_path, **given) as memory:
        for ask in (memory.regions.assignments, memory.regions.mdp):
            with pytest.raises(NotFoundError, match="this memory is too small for any"):
                ask()
        assert memory.regions.levels() == ()
        with pytest.raises(NotFoundError, match="too small for regions: add documents first"):
            memory.regions.learn_episode([[1.0] * 16], ["find"], 1.0)
        assert "embedder" not in memory.store.catalog.meta()
        memory.add_documents([Document("one", id="a")])
        turn = memory.retrieve("one").turn.id
        assert memory.record(Feedback(turn, 1.0, used=["a"])).status == "applied"
        assert memory.store.regions.get_all_transitions("default", 1) == []
