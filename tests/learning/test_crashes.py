"""SIGKILL at any moment loses no feedback that was acknowledged and applies none twice."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage import GraphStore

pytestmark = pytest.mark.slow

CHILD = Path(__file__).parent / "serving_child.py"
LEARN_COMMAND = [sys.executable, "-m", "crabpath_retrievers.cli", "learn"]


@pytest.fixture
def reopened(location, tmp_path):
    """Opens the memory of the test with its vectors in a directory, as other processes do."""

    def open_memory(**learning):
        return CrabPath.open(
            location,
            embeddings=DeterministicFakeEmbedding(size=16),
            vectors=tmp_path / "vectors",
            settings=Settings(learning=LearningSettings(**learning)),
        )

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


def acknowledged(process):
    """Ids for which record had returned when the process ended."""
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == -9
    return printed.split()


def learned_once(host, ids):
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


@pytest.mark.parametrize("apply", ["background", "inline"])
@pytest.mark.parametrize("step", ["returned:1", "returned:5", "applied:3", "indexed:2"])
def test_a_killed_server_loses_nothing(serve, reopened, host_of, apply, step):
    """Right after record returned, after a feedback was applied, after its episode was indexed."""
    ids = acknowledged(serve(apply, step))
    assert step != "returned:5" or len(ids) == 5
    with reopened() as memory:
        learned_once(host_of(memory), ids)


@pytest.mark.parametrize("apply", ["background", "inline"])
def test_a_server_that_is_killed_at_any_moment_loses_nothing(serve, reopened, host_of, apply):
    for _ in range(3):
        process = serve(apply, "never")
        ids = [process.stdout.readline().strip()]
        time.sleep(random.uniform(0, 0.3))  # noqa: S311
        process.kill()
        ids += acknowledged(process)
        with reopened() as memory:
            learned_once(host_of(memory), ids)


def test_feedback_of_a_killed_server_is_learned_by_another_process(serve, reopened, host_of):
    ids = acknowledged(serve("external", "returned:4"))
    assert len(ids) == 4
    with reopened(apply="external") as memory:
        assert host_of(memory).learned() == 0
        StandaloneLearner(memory.store).queue.learn_waiting()
        learned_once(host_of(memory), ids)


@pytest.fixture
def backlog(reopened, host_of):
    """Sixty feedbacks that wait."""
    with reopened(apply="external") as memory:
        host = host_of(memory)
        ids = [str(number) for number in range(60)]
        for number in ids:
            memory.record(Feedback(host.ask(), 1.0, used=["a"], feedback_id=number))
    return ids


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
    subprocess.run([*LEARN_COMMAND, "--store", location], check=True, timeout=60)
    store.close()
    with reopened() as memory:
        learned_once(host_of(memory), backlog)


def test_two_learners_at_once_apply_each_feedback_once(location, reopened, host_of, backlog):
    """What one of them applied the other one leaves, and together they apply all."""
    command = [*LEARN_COMMAND, "--store", location, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with reopened() as memory:
        learned_once(host_of(memory), backlog)
