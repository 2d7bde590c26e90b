"""No crash and no damaged row loses feedback that was acknowledged, or stops any other."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, Feedback, StoreError
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage import GraphStore
from tests.seams import get_engine, get_services

CHILD = Path(__file__).parents[1] / "stubs" / "serving_child.py"
LEARN_COMMAND = [sys.executable, "-m", "crabpath_retrievers", "learn"]


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
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = {"stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        started.append(subprocess.Popen(command, env={**os.environ, **path}, **pipe))
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
    get_services(host.memory).episodes.catch_up()
    namespace = host.memory.store.walk.get_clock("default").key
    episodes = host.memory.store.learned.latest_episodes(namespace, 1000)
    assert host.memory.index.open_sibling(f"episodes-{namespace}").count() == len(episodes) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("apply", "step"),
    [
        *product(["background", "inline"], ["returned:1", "returned:5", "applied:3", "indexed:2"]),
        ("external", "returned:5"),
    ],
)
def test_a_killed_server_loses_nothing(serve, open_memory, host_of, apply, step):
    """Right after record returned, after a feedback was applied, after its episode was indexed."""
    ids = list_acknowledged(serve(apply, step))
    assert step != "returned:5" or len(ids) == 5
    if apply == "external":
        with open_memory(apply=apply) as memory:
            assert host_of(memory).learned() == 0
            StandaloneLearner(memory.store).recorder.learn_waiting()
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


@pytest.mark.sqlite
def test_only_what_nobody_was_promised_waits_for_the_next_sync(memory, host):
    """Keeping feedback, its undo, documents and notes sync; turn and lesson wait for the next."""
    levels = []

    @sa.event.listens_for(get_engine(memory.store), "commit")
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


@pytest.mark.sqlite
def test_a_lesson_that_was_lost_is_learned_again(memory, host, location, tmp_path):
    """Power went after the feedback was kept: it waits, and the next open learns from it."""
    saved, turn = tmp_path / "saved", host.ask()
    memory.store.flush()

    @sa.event.listens_for(get_engine(memory.store), "begin")
    def _save(_connection: sa.Connection) -> None:
        # The files as they stand between keeping the feedback and learning from it.
        shutil.copytree(location, saved, dirs_exist_ok=True)

    memory.record(Feedback(turn, 1.0, feedback_id="one"))
    given = {"embeddings": memory.embedder.embeddings, "vectors": tmp_path / "other vectors"}
    with CrabPath.open(saved, **given, reindex=True) as lost:
        assert lost.store.learned.get_feedback("one").status == "applied"
        assert lost.store.walk.get_clock("default").learned == 1


def damage(memory, table: sa.Table, **values) -> None:
    """Overwrite columns of every row of a table, as no change of this program would."""
    with get_engine(memory.store).begin() as connection:
        connection.execute(table.update().values(**values))


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps({"turn_id": None, "outcome": 1.0, "feedback_id": "odd", "namespace": ""}),
        json.dumps({"of": "another release"}),
        "no JSON",
    ],
)
def test_unreadable_feedback_is_refused_and_the_rest_is_learned(
    open_memory, host_of, payload, caplog
):
    """A store that holds such a row opens; the row is refused with a note, others are applied."""
    with open_memory(apply="external") as memory:
        memory.record(Feedback(None, 1.0, feedback_id="odd"))
        damage(memory, s.feedback, payload=payload)
        memory.record(Feedback(host_of(memory).ask(), 1.0, feedback_id="sound"))
    with open_memory() as memory:
        assert host_of(memory).status("sound") == "applied"
        assert memory.store.learned.count_feedback() == {"waiting": 0, "applied": 1, "refused": 1}
        assert memory.record(Feedback(host_of(memory).ask(), 1.0)).status == "applied"
        with pytest.raises(StoreError, match="'odd' cannot be read"):
            memory.record(Feedback(None, 1.0, feedback_id="odd"))
    assert "feedback 'odd' is refused: it cannot be read" in caplog.text


def test_a_damaged_turn_is_not_found_and_stops_no_window(memory, host, caplog):
    """Feedback about it is refused; feedback about the last turns counts for the others."""
    broken = host.ask()
    memory.store.flush()
    damage(memory, s.turns, record='{"id": "x"}')
    sound = host.ask()
    assert memory.record(Feedback(broken, 1.0)).status == "refused"
    assert memory.record(Feedback(None, 1.0)).status == "applied"
    assert memory.store.turns.find(sound).consumed is not None
    assert "a turn in the store is damaged and passed over" in caplog.text


def test_damaged_experience_is_passed_over(open_memory, host_of, caplog):
    """Episodes, a mind and a chunk that cannot be read: the memory answers, with a warning."""
    with open_memory() as memory:
        memory.record(Feedback(host_of(memory).ask(), 1.0, used=["a"]))
        damage(memory, s.episodes, documents="no JSON", indexed=0)
        damage(memory, s.namespaces, model='{"of": "another release"}')
    with open_memory() as memory:
        assert host_of(memory).ask()
    with open_memory() as memory:
        with get_engine(memory.store).begin() as connection:
            key = sa.select(s.nodes.c.key).where(s.nodes.c.id == "a").scalar_subquery()
            broken = s.contents.update().where(s.contents.c.node == key)
            connection.execute(broken.values(metadata="no JSON"))
        assert set(host_of(memory).found()) == {"b", "c"}
    for sentence in (
        "an episode in the store is damaged",
        "the learned model of 'default' is damaged",
        "a chunk in the store is damaged",
    ):
        assert sentence in caplog.text


def test_feedback_that_another_process_applies_meanwhile_is_applied(
    memory, open_memory, host, monkeypatch
):
    """Between two reads of its own somebody applied it: the receipt says so, not "refused"."""
    other = open_memory()
    kind, applied = type(memory.store), []
    open_reader = kind.open_reader

    def open_late(store):
        """Read when another process has applied the feedback."""
        if store is memory.store and not applied:
            applied.extend(range(other.learning.learn_waiting().applied))
        return open_reader(store)

    monkeypatch.setattr(kind, "open_reader", open_late)
    receipt = memory.record(Feedback(host.ask(), 1.0, feedback_id="one"))
    assert (receipt.status, host.learned(), len(applied)) == ("applied", 1, 1)
