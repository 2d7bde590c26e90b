"""When kept feedback is learned from: at once, behind the host, by another process, at open."""

import threading
import time

import pytest
from blockbuster import blockbuster_ctx

from crabpath_retrievers import Feedback, Settings, StoreUnavailableError
from crabpath_retrievers.config import EpisodeSettings, LearningSettings
from crabpath_retrievers.core.text import QueryInformation
from crabpath_retrievers.learning import recorder
from crabpath_retrievers.learning.recorder import BackgroundWorker
from crabpath_retrievers.learning.standalone import (
    StandaloneLearner,
    parse_settings,
    publish_settings,
    read_published_settings,
)
from crabpath_retrievers.retrieval.episodes import EpisodeQuery
from crabpath_retrievers.storage import GraphStore


@pytest.fixture
def learn_beside(location):
    """Learns as another process does, from the store alone."""

    def learn(work=lambda learner: learner.queue.learn_waiting()):
        beside = GraphStore(location)
        done = work(StandaloneLearner(beside))
        beside.close()
        return done

    return learn


def test_background_feedback_is_applied_by_the_time_of_closing(open_memory, host_of, location):
    """Receipts say that it waits; closing waits for the thread that learns."""
    with open_memory(apply="background") as memory:
        turns = [host_of(memory).ask() for _ in range(10)]
        receipts = [memory.record(Feedback(turn, 1.0, used=["a"])) for turn in turns]
        # The thread may be done with one before its receipt is written.
        assert {receipt.status for receipt in receipts} <= {"waiting", "applied"}
    store = GraphStore(location)
    assert store.learned.count_feedback() == {"waiting": 0, "applied": 10, "refused": 0}
    store.close()


@pytest.mark.parametrize("apply", ["inline", "background"])
def test_what_waits_is_applied_at_open(open_memory, host_of, learn_beside, apply):
    """By a memory that learns; an external one leaves it waiting.

    A server that is asked to end stops after the feedback at hand.
    """
    for _ in range(2):
        with open_memory(apply="external") as memory:
            host = host_of(memory)
            for _ in range(2):
                assert memory.record(Feedback(host.ask(), 1.0)).status == "waiting"
            assert host.learned() == 0
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        assert (
            learn_beside(lambda learner: learner.serve(0.01, lambda: host.learned() >= 1))[0] == 1
        )
        assert memory.store.learned.count_feedback()["waiting"] == 3
    with open_memory(apply=apply) as memory:
        memory._services.recorder._worker.drain()
        assert host_of(memory).learned() == 4


async def test_learn_waiting_applies_and_indexes_all(open_memory, host_of):
    """Without blocking an event loop."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        for _ in range(3):
            memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        memory.record(Feedback("nobody", 1.0))
        with blockbuster_ctx():
            assert await memory.aio.learning.learn_waiting() == (3, 1, 0)
        assert (host.learned(), memory.store.learned.count_unindexed_episodes()) == (3, 0)
        assert memory.learning.learn_waiting() == (0, 0, 0)
    with pytest.raises(StoreUnavailableError, match="open it again"):
        memory.learning.learn_waiting()


@pytest.mark.parametrize(("sources", "weight"), [({}, 1.0), ({"human": 0.25}, 0.25)])
def test_another_process_learns_with_the_settings_of_the_server(
    open_memory, host_of, learn_beside, monkeypatch, sources, weight
):
    """The server sees it at once, recalls it, and indexes it behind further feedback."""
    with open_memory(apply="external", **({"sources": sources} if sources else {})) as memory:
        host = host_of(memory)
        memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        assert learn_beside() == (1, 0, 0)
        assert host.usage()["a"] == (weight, 0.0)
        clock = memory.store.walk.get_clock("default")
        vector = memory.embedder.query("Which fruit is red?")
        question = EpisodeQuery("Which fruit is red?", vector, QueryInformation.from_idf({}))

        def recall():
            found = memory._services.retrieval.models.recall(question, clock)
            return memory.store.learned.count_unindexed_episodes(), found[0]["a"].same

        assert recall() == (1, 1.0)
        monkeypatch.setattr(recorder, "_INDEX_BATCH", 1)
        memory._services.recorder._checked_at -= 1
        memory.record(Feedback(host.ask(), 1.0))
        memory._services.recorder._worker.drain()
        assert recall() == (0, 1.0)


def test_settings_are_published_as_they_are(store):
    """Of another release they are read as far as they are known."""
    learning = LearningSettings(apply="external", usage_prior=(1.0, 9.0), learning_rate=0.5)
    settings = Settings(learning=learning, episode=EpisodeSettings(duplicate_similarity=0.8))
    publish_settings(store, settings)
    assert parse_settings(read_published_settings(store)) == settings
    text = '{"learning": {"learning_rate": 0.5, "newer": 1}, "other": {}}'
    assert parse_settings(text) == Settings(learning=LearningSettings(learning_rate=0.5))
    assert parse_settings(None) == Settings()


def test_waking_a_worker_at_work_makes_it_work_once_more(caplog):
    """An error is logged and ends no worker; no idle thread stays behind."""
    gate, done = threading.Event(), []

    def work():
        gate.wait(5)
        done.append(1)
        if len(done) == 1:
            msg = "the database is down"
            raise OSError(msg)

    worker = BackgroundWorker(work, "test-thread")
    worker.drain()  # nothing was ever to do
    for _ in range(3):
        worker.wake()
        time.sleep(0.05)  # it has begun and waits
    gate.set()
    worker.drain()
    assert len(done) == 2
    assert "test-thread could not finish" in caplog.text
    assert "test-thread" not in {thread.name for thread in threading.enumerate()}
