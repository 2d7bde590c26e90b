"""Regions and models of levels, vectors and texts that are none: one sentence each."""

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
)


@pytest.mark.parametrize(
    ("level", "error", "words"),
    [
        (9, NotFoundError, "level 9 has no hub: levels 1 to "),
        (0, InvalidInputError, "level must be a whole number of at least 1, not 0"),
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


def test_another_embedder_is_refused(tmp_path):
    one, other = DeterministicFakeEmbedding(size=16), DeterministicFakeEmbedding(size=17)
    with CrabPath.open(tmp_path, embeddings=one) as memory:
        memory.add_documents([Document(f"text {i}", id=f"n{i}") for i in range(60)])
        assert memory.regions.assign("text 1", 1)
    with (
        CrabPath.open(tmp_path, embeddings=other) as memory,
        pytest.raises(EmbeddingMismatchError, match="the store was built with 16 dimensions"),
    ):
        memory.regions.assign("text 1", 1)
