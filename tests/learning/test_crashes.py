"""No crash loses feedback that was acknowledged or applies any twice; it is on the disk before."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage import GraphStore

CHILD = Path(__file__).parents[1] / "stubs" / "serving_child.py"
LEARN_COMMAND = [sys.executable, "-m", "crabpath_retrievers.cli", "learn"]
VECTORS = DeterministicFakeEmbedding(size=16)


@pytest.fixture
def reopened(location, tmp_path):
    """Opens the memory of the test with its vectors in a directory, as other processes do."""

    def open_memory(**learning):
        settings = Settings(learning=LearningSettings(**learning))
        place = tmp_path / "vectors"
        return CrabPath.open(location, embeddings=VECTORS, vectors=place, settings=settings)

    with open_memory() as memory:
        memory.add_documents([Document(f"Fruit {node} is red.", id=node) for node in "abc"])
    return open_memory


@pytest.fixture
def serve(location, tmp_path, reopened):
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
def test_a_killed_server_loses_nothing(serve, reopened, host_of, apply, step):
    """Right after record returned, after a feedback was applied, after its episode was indexed."""
    if apply == "external" and step != "returned:5":
        pytest.skip("it neither applies nor indexes")
    ids = list_acknowledged(serve(apply, step))
    assert step != "returned:5" or len(ids) == 5
    if apply == "external":
        with reopened(apply=apply) as memory:
            assert host_of(memory).learned() == 0
            StandaloneLearner(memory.store).queue.learn_waiting()
    with reopened() as memory:
        check_learned_once(host_of(memory), ids)


@pytest.fixture
def backlog(reopened, host_of):
    """Sixty feedbacks that wait."""
    with reopened(apply="external") as memory:
        host = host_of(memory)
        ids = [str(number) for number in range(60)]
        for number in ids:
            memory.record(Feedback(host.ask(), 1.0, used=["a"], feedback_id=number))
    return ids


@pytest.mark.slow
def test_a_killed_learner_loses_nothing_and_repeats_nothing(location, reopened, host_of, backlog):
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
    with reopened() as memory:
        check_learned_once(host_of(memory), backlog)


SERVING = """
import os, sys
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from crabpath_retrievers import CrabPath, Feedback
embeddings = DeterministicFakeEmbedding(size=16)
vectors = InMemoryVectorStore(embeddings)
with CrabPath.open(sys.argv[1], embeddings=embeddings, vectors=vectors) as m:
    m.add_documents([Document("The sky is blue.", id="a")])
    os.write(2, b"DONE documents\\n")
    for number in range(5):
        turn = m.retrieve("sky").turn.id
        m.record(Feedback(turn, 1.0, feedback_id=str(number)))
        os.write(2, b"DONE feedback\\n")
    m.undo("3")
    os.write(2, b"DONE undo\\n")
    m.teach("The sea is green.")
    os.write(2, b"DONE note\\n")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_whatever_is_acknowledged_was_synced_before(tmp_path):
    """Of the log nothing is unsynced when a call that must be durable returns.

    Turn records, and what was learned from feedback that is kept, are synced with what comes next.
    """
    calls = ["-e", "trace=pwrite64,fdatasync,fsync,write", "-e", "signal=none"]
    done = subprocess.run(
        [shutil.which("strace"), "-f", "-y", *calls, sys.executable, "-c", SERVING, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    acknowledged, synced = [], False
    for line in done.stderr.splitlines():
        if re.search(r"(fsync|fdatasync)\(\d+<[^>]*graph\.sqlite-wal>", line):
            synced = True
        elif mark := re.search(r'write\(2[^"]*"DONE (\w+)', line):
            acknowledged.append((mark.group(1), synced))
            synced = False
    calls = ["documents", *["feedback"] * 5, "undo", "note"]
    assert acknowledged == [(call, True) for call in calls]


@pytest.fixture
def sky(tmp_path):
    """Opens a memory of one page."""
    index = InMemoryVectorStore(VECTORS)

    def open_memory(where=tmp_path / "memory"):
        return CrabPath.open(where, embeddings=VECTORS, vectors=index)

    with open_memory() as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
    return open_memory


def test_only_what_nobody_was_promised_waits_for_the_next_sync(sky):
    """Keeping feedback syncs; the turn before it and the lesson after it do not."""
    levels = []
    with sky() as memory:

        @sa.event.listens_for(memory.store._engine, "commit")
        def _note(connection: sa.Connection) -> None:
            level = connection.connection.dbapi_connection.execute("PRAGMA synchronous")
            levels.append({1: "late", 2: "synced"}[level.fetchone()[0]])

        turn = memory.retrieve("sky").turn.id
        memory.store.flush()
        assert levels == ["late"]
        memory.record(Feedback(turn, 1.0, feedback_id="one"))
        assert levels == ["late", "synced", "late"]
        memory.undo("one")
        assert levels[3:] == ["synced"]


def test_a_lesson_that_was_lost_is_learned_again(sky, tmp_path):
    """Power went after the feedback was kept: it waits, and the next open learns from it."""
    saved = tmp_path / "saved"
    with sky() as memory:
        turn = memory.retrieve("sky").turn.id

        @sa.event.listens_for(memory.store._engine, "begin")
        def _save(_connection: sa.Connection) -> None:
            # The files as they stand between keeping the feedback and learning from it.
            shutil.copytree(tmp_path / "memory", saved, dirs_exist_ok=True)

        memory.record(Feedback(turn, 1.0, feedback_id="one"))
    with sky(saved) as memory:
        assert memory.store.learned.get_feedback("one").status == "applied"
        assert memory.store.walk.get_clock("default").learned == 1
