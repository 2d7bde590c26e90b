"""No crash loses feedback that was acknowledged or applies any twice; it is on the disk before."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage import GraphStore

CHILD = Path(__file__).parents[1] / "stubs" / "serving_child.py"
LEARN_COMMAND = [sys.executable, "-m", "crabpath_retrievers.cli", "learn"]


@pytest.fixture
def in_chroma():
    """Vectors lie in a directory, where other processes find them."""
    return True


@pytest.fixture
def serve(location, tmp_path, open_memory):
    """Starts processes that serve the memory of the test; none outlives it."""
    started = []

    def start(apply, step):
        command = [sys.executable, str(CHILD), location, str(tmp_path / "vectors"), apply, step]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def list_acknowledged(process):
    """Ids for which record had returned when the process ended."""
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == -9
    return printed.split()


def check_learned_once(host, ids):
    """All of these are applied, and everything that is applied is counted exactly once."""
    assert {host.status(feedback_id) for feedback_id in ids} == {"applied"}
    tally = host.memory.store.learned.count_feedback()
    assert (tally["waiting"], tally["refused"]) == (0, 0)
    assert host.learned() == tally["applied"]
    assert host.usage()["a"] == (tally["applied"], 0.0)
    host.memory._services.recorder._episodes.catch_up()
    namespace = host.memory.store.walk.get_clock("default").key
    episodes = host.memory.store.learned.latest_episodes(namespace, 1000)
    assert host.memory.index.beside(f"episodes-{namespace}").count() == len(episodes) > 0


@pytest.mark.slow
@pytest.mark.parametrize("apply", ["background", "inline", "external"])
@pytest.mark.parametrize("step", ["returned:1", "returned:5", "applied:3", "indexed:2"])
def test_a_killed_server_loses_nothing(serve, open_memory, host_of, apply, step):
    """Right after record returned, after a feedback was applied, after its episode was indexed."""
    if apply == "external" and step != "returned:5":
        pytest.skip("it neither applies nor indexes")
    ids = list_acknowledged(serve(apply, step))
    assert step != "returned:5" or len(ids) == 5
    if apply == "external":
        with open_memory(apply=apply) as memory:
            assert host_of(memory).learned() == 0
            StandaloneLearner(memory.store).queue.learn_waiting()
    with open_memory() as memory:
        check_learned_once(host_of(memory), ids)


@pytest.fixture
def backlog(open_memory, host_of):
    """Sixty feedbacks that wait."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        ids = [str(number) for number in range(60)]
        for number in ids:
            memory.record(Feedback(host.ask(), 1.0, used=["a"], feedback_id=number))
    return ids


@pytest.mark.slow
def test_a_killed_learner_loses_nothing_and_repeats_nothing(
    location, open_memory, host_of, backlog
):
    """Learners are killed at random in the midst of it; the last one finishes."""
    store = GraphStore(location)
    for _ in range(3):
        before = store.learned.count_feedback()["applied"]
        process = subprocess.Popen([*LEARN_COMMAND, "--worker", "--store", location])
        while store.learned.count_feedback()["applied"] == before < len(backlog):
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.05))  # noqa: S311
        process.kill()
        process.wait()
    # Two at once: what one of them applied the other one leaves, and together they apply all.
    both = [subprocess.Popen([*LEARN_COMMAND, "--store", location]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    store.close()
    with open_memory() as memory:
        check_learned_once(host_of(memory), backlog)


def test_only_what_nobody_was_promised_waits_for_the_next_sync(memory, host):
    """Keeping feedback, its undo, documents and notes sync; turn and lesson wait for the next."""
    levels = []

    @sa.event.listens_for(memory.store._engine, "commit")
    def _note(connection: sa.Connection) -> None:
        level = connection.connection.dbapi_connection.execute("PRAGMA synchronous")
        levels.append({1: "late", 2: "synced"}[level.fetchone()[0]])

    def committed():
        done = levels.copy()
        levels.clear()
        return done

    turn = host.ask()
    memory.store.flush()
    assert committed() == ["late"]
    memory.record(Feedback(turn, 1.0, feedback_id="one"))
    assert committed() == ["synced", "late"]
    memory.undo("one")
    assert committed() == ["synced"]
    memory.teach("The sea is green.")
    assert committed() == ["synced"]
    memory.add_documents([Document("The sea is deep.", id="d")])
    assert "synced" in committed()


def test_a_lesson_that_was_lost_is_learned_again(memory, host, location, tmp_path):
    """Power went after the feedback was kept: it waits, and the next open learns from it."""
    saved, turn = tmp_path / "saved", host.ask()
    memory.store.flush()

    @sa.event.listens_for(memory.store._engine, "begin")
    def _save(_connection: sa.Connection) -> None:
        # The files as they stand between keeping the feedback and learning from it.
        shutil.copytree(location, saved, dirs_exist_ok=True)

    memory.record(Feedback(turn, 1.0, feedback_id="one"))
    given = {"embeddings": memory.embedder.embeddings, "vectors": tmp_path / "other vectors"}
    with CrabPath.open(saved, **given, reindex=True) as lost:
        assert lost.store.learned.get_feedback("one").status == "applied"
        assert lost.store.walk.get_clock("default").learned == 1
