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
    memory._services.episodes.catch_up()


def near(memory, namespace, query="what is it?"):
    """Ids of the episodes that a query recalls."""
    clock = memory.store.walk.get_clock(namespace)
    vector = memory.embedder.query(query)
    return [found.episode.id for found in memory._services.episodes.near(vector, clock.key)]


def test_the_vectors_of_a_forgotten_namespace_are_gone(memory):
    """Its collection is deleted; those of others stay."""
    for namespace in ("ann", "bob"):
        learn(memory, namespace)
    key = memory.store.walk.get_clock("ann").key
    memory.forget(namespace="ann")
    assert memory.index.beside(f"episodes-{key}").count() == 0
    assert len(near(memory, "bob")) == 1


def test_a_namespace_starts_afresh_after_it_was_forgotten(memory):
    """Nothing that is kept under its old key can be taken for its own."""
    learn(memory, "ann")
    before = memory.store.walk.get_clock("ann").key
    memory.forget(namespace="ann")
    learn(memory, "ann", "something else entirely?")
    assert memory.store.walk.get_clock("ann").key > before
    assert len(near(memory, "ann")) == 1


def test_forgetting_a_namespace_that_never_learned(memory):
    """There is nothing to delete, and nothing is made to delete it."""
    memory.retrieve("what is it?", namespace="ann")
    memory.forget(namespace="ann")
    assert not memory._services.episodes._collections.open_namespaces


@pytest.mark.parametrize("how", ["undo", "forget"])
@pytest.mark.parametrize("kind", ["episodes", "notes"])
def test_what_is_taken_back_while_it_is_indexed(memory, monkeypatch, kind, how):
    """No vector of it stays, whoever is faster."""
    turn = memory.retrieve("what is it?", k=3, namespace="ann").turn
    memory.record(Feedback(turn.id, -1.0, used=["b"], correction="It is c.", namespace="ann"))
    indexed = getattr(memory._services, kind)
    key, upsert = memory.store.walk.get_clock("ann").key, indexed._collections.upsert

    def take_back_first(entries):
        if how == "undo":
            memory.undo(turn_id=turn.id)
        else:
            memory.forget(namespace="ann")
        upsert(entries)

    monkeypatch.setattr(indexed._collections, "upsert", take_back_first)
    assert (
        indexed._store.learned.count_unindexed_episodes() or indexed._store.notes.count_unindexed()
    )
    indexed.catch_up()
    assert memory.index.beside(f"{kind}-{key}").count() == 0


def searched(memory, monkeypatch):
    """How often the index of episodes was searched."""
    index = memory._services.episodes._collections.of(memory.store.walk.get_clock("default").key)
    asked, search = [], index.search

    def counted(*given):
        asked.append(given)
        return search(*given)

    monkeypatch.setattr(index, "search", counted)
    return asked


def test_feedback_on_the_last_answer_needs_no_second_search(memory, monkeypatch):
    """What the retrieval recalled is still all that there is; the success is added to it."""
    learn(memory, "default")
    asked = searched(memory, monkeypatch)
    learn(memory, "default")
    assert len(asked) == 1
    (episode,) = memory.store.learned.latest_episodes(memory.store.walk.get_clock("default").key, 9)
    assert episode.turns == 2.0


def test_feedback_after_other_feedback_searches_again(memory, monkeypatch):
    """A success that was learned since the retrieval may be the same."""
    learn(memory, "default", "something else?")
    first, second = (memory.retrieve("what is it?", k=3).turn.id for _ in range(2))
    asked = searched(memory, monkeypatch)
    memory.record(Feedback(first, 1.0, used=["b"]))
    memory.record(Feedback(second, 1.0, used=["b"]))
    assert len(asked) == 1
    key = memory.store.walk.get_clock("default").key
    assert sorted(e.turns for e in memory.store.learned.latest_episodes(key, 9)) == [1.0, 2.0]


def test_few_queries_are_kept_at_hand(memory, monkeypatch):
    """The oldest go first."""
    monkeypatch.setattr("crabpath_retrievers.retrieval.episodes._CACHED", 2)
    learn(memory, "default")
    for number in range(5):
        memory.retrieve(f"question {number}?")
    assert len(memory._services.episodes._nearest_ids) == 2
