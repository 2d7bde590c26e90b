"""Remembered successes: recalled by similar queries, forgotten with their namespace."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback


@pytest.fixture
def memory(tmp_path):
    """A memory over three documents."""
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document(f"text {i}", id=i) for i in "abc"], split=False)
        yield memory


def learn(memory, namespace, query="what is it?"):
    """A success that used one document; its vector is searchable at once."""
    answer = memory.retrieve(query, k=3, namespace=namespace)
    memory.record(Feedback(answer.turn.id, 1.0, used=["b"]))
    memory._episodes.catch_up()


def near(memory, namespace, query="what is it?"):
    """Ids of the episodes that a query recalls."""
    clock = memory.store.walk.clock(namespace)
    vector = memory.embedder.query(query)
    return [found.episode.id for found in memory._episodes.near(vector, clock.key)]


def test_the_vectors_of_a_forgotten_namespace_are_gone(memory):
    """Its collection is deleted; those of others stay."""
    for namespace in ("ann", "bob"):
        learn(memory, namespace)
    key = memory.store.walk.clock("ann").key
    memory.forget(namespace="ann")
    assert memory.index.beside(f"episodes-{key}").count() == 0
    assert len(near(memory, "bob")) == 1


def test_a_namespace_starts_afresh_after_it_was_forgotten(memory):
    """Nothing that is kept under its old key can be taken for its own."""
    learn(memory, "ann")
    before = memory.store.walk.clock("ann").key
    memory.forget(namespace="ann")
    learn(memory, "ann", "something else entirely?")
    assert memory.store.walk.clock("ann").key > before
    assert len(near(memory, "ann")) == 1


def test_forgetting_a_namespace_that_never_learned(memory):
    """There is nothing to delete, and nothing is made to delete it."""
    memory.retrieve("what is it?", namespace="ann")
    memory.forget(namespace="ann")
    assert not memory._episodes._beside.opened
