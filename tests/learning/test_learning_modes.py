"""When kept feedback is learned from: at once, behind the host, by another process, at open."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import EpisodeSettings, LearningSettings
from crabpath_retrievers.core.text import QueryInformation
from crabpath_retrievers.learning import recorder
from crabpath_retrievers.learning.standalone import (
    StandaloneLearner,
    parse_settings,
    publish_settings,
    read_published_settings,
)
from crabpath_retrievers.retrieval.episodes import EpisodeQuery
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.embedder import to_unit_vector


def test_background_feedback_is_applied_by_the_time_of_closing(open_memory, host_of, location):
    with open_memory(apply="background") as memory:
        turns = [host_of(memory).ask() for _ in range(20)]
        receipts = [memory.record(Feedback(turn, 1.0, used=["a"])) for turn in turns]
        # The thread may be done with one before its receipt is written.
        assert {receipt.status for receipt in receipts} <= {"waiting", "applied"}
    store = GraphStore(location)
    assert store.learned.count_feedback() == {"waiting": 0, "applied": 20, "refused": 0}
    store.close()


def test_background_feedback_is_applied_without_closing(open_memory, host_of):
    """The thread ends when nothing waits and begins again with the next feedback."""
    with open_memory(apply="background") as memory:
        host = host_of(memory)
        for number in range(1, 4):
            memory.record(Feedback(host.ask(), 1.0))
            memory._services.recorder._worker.drain()
            assert host.learned() == number


def test_recording_again_tells_how_feedback_stands(open_memory, host_of):
    with open_memory(apply="background") as memory:
        feedback = Feedback(host_of(memory).ask(), 1.0)
        memory.record(feedback)
        memory._services.recorder._worker.drain()
        assert memory.record(feedback).status == "applied"


@pytest.mark.parametrize("apply", ["inline", "background"])
def test_what_waits_is_applied_at_open(open_memory, host_of, apply):
    """Feedback that an ended process left is learned from without any new one."""
    with open_memory(apply="external") as memory:
        turns = [host_of(memory).ask() for _ in range(5)]
        for turn in turns:
            memory.record(Feedback(turn, 1.0))
    with open_memory(apply=apply) as memory:
        memory._services.recorder._worker.drain()
        assert host_of(memory).learned() == 5


def test_an_external_memory_learns_nothing_itself(open_memory, host_of):
    for _ in range(2):
        with open_memory(apply="external") as memory:
            host = host_of(memory)
            assert memory.record(Feedback(host.ask(), 1.0)).status == "waiting"
            assert host.learned() == 0


def test_another_process_learns_from_the_graph_store_alone(open_memory, host_of, location):
    """It applies what waits while the memory that serves stays open, and that memory sees it."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        beside = GraphStore(location)
        assert StandaloneLearner(beside).queue.learn_waiting() == (1, 0, 0)
        beside.close()
        assert host.usage()["a"] == (1.0, 0.0)


def test_the_serving_process_sees_and_indexes_the_episodes_of_others(
    tmp_path, host_of, monkeypatch
):
    """It recalls them at once, and indexes them behind a query, once a second at most."""
    vectors = DeterministicFakeEmbedding(size=16)
    settings = Settings(learning=LearningSettings(apply="external"))
    with CrabPath.open(tmp_path, embeddings=vectors, settings=settings) as memory:
        memory.add_documents([Document(node, id=node) for node in "abc"])
        host = host_of(memory)
        memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        beside = GraphStore(tmp_path)
        StandaloneLearner(beside).queue.learn_waiting()
        beside.close()
        clock = memory.store.walk.get_clock("default")
        vector = to_unit_vector(vectors.embed_query("Which fruit is red?"))
        question = EpisodeQuery("Which fruit is red?", vector, QueryInformation.from_idf({}))
        recall = memory._services.retrieval.minds.recall
        assert (
            memory.store.learned.count_unindexed_episodes(),
            recall(question, clock).scores["a"].same,
        ) == (1, 1.0)
        monkeypatch.setattr(recorder, "_INDEX_BATCH", 1)
        memory._services.recorder._checked_at -= 1
        host.ask()
        memory._services.recorder._worker.drain()
        assert (
            memory.store.learned.count_unindexed_episodes(),
            recall(question, clock).scores["a"].same,
        ) == (0, 1.0)


def test_the_learner_uses_the_settings_of_the_server(open_memory, host_of, location):
    """A source weighs outside what the serving process says, not what is the default."""
    with open_memory(apply="external", sources={"human": 0.25}) as memory:
        host = host_of(memory)
        memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        beside = GraphStore(location)
        StandaloneLearner(beside).queue.learn_waiting()
        beside.close()
        assert host.usage()["a"] == (0.25, 0.0)


def test_settings_are_published_as_they_are(store):
    settings = Settings(
        learning=LearningSettings(apply="external", usage_prior=(1.0, 9.0), learning_rate=0.5),
        episode=EpisodeSettings(duplicate_similarity=0.8),
    )
    publish_settings(store, settings)
    assert parse_settings(read_published_settings(store)) == settings


def test_settings_of_another_release_are_read_as_far_as_they_are_known():
    text = '{"learning": {"learning_rate": 0.5, "newer": 1}, "other": {}}'
    assert parse_settings(text) == Settings(learning=LearningSettings(learning_rate=0.5))
    assert parse_settings(None) == Settings()


def test_serving_ends_when_asked(open_memory, host_of, location):
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        for _ in range(4):
            memory.record(Feedback(host.ask(), 1.0))
        beside = GraphStore(location)
        tally = StandaloneLearner(beside).serve(0.01, lambda: host.learned() >= 2)
        beside.close()
        assert tally == (2, 0, 0)
        assert memory.store.learned.count_feedback()["waiting"] == 2
