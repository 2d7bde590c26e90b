"""What was acknowledged is on the disk: SQLite syncs its log before anybody is told."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback

pytestmark = pytest.mark.slow

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


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_whatever_is_acknowledged_was_synced_before(tmp_path):
    """Of the log nothing is unsynced when a call that must be durable returns.

    Turn records, and what was learned from feedback that is kept, are synced with what comes next.
    """
    trace = [
        "strace",
        "-f",
        "-y",
        "-e",
        "trace=pwrite64,fdatasync,fsync,write",
        "-e",
        "signal=none",
    ]
    done = subprocess.run(
        [*trace, sys.executable, "-c", SERVING, str(tmp_path)],
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
    assert acknowledged == [
        ("documents", True),
        *[("feedback", True)] * 5,
        ("undo", True),
        ("note", True),
    ]


def test_only_what_nobody_was_promised_waits_for_the_next_sync(tmp_path):
    """Keeping feedback syncs; the turn before it and the lesson after it do not."""
    embeddings = DeterministicFakeEmbedding(size=16)
    levels = []
    with CrabPath.open(
        tmp_path, embeddings=embeddings, vectors=InMemoryVectorStore(embeddings)
    ) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])

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


def test_a_lesson_that_was_lost_is_learned_again(tmp_path):
    """Power went after the feedback was kept: it waits, and the next open learns from it."""
    embeddings = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": embeddings, "vectors": InMemoryVectorStore(embeddings)}
    place, saved = tmp_path / "memory", tmp_path / "saved"
    with CrabPath.open(place, **given) as memory:
        memory.add_documents([Document("The sky is blue.", id="a")])
        turn = memory.retrieve("sky").turn.id

        @sa.event.listens_for(memory.store._engine, "begin")
        def _save(_connection: sa.Connection) -> None:
            # The files as they stand between keeping the feedback and learning from it.
            shutil.copytree(place, saved, dirs_exist_ok=True)

        memory.record(Feedback(turn, 1.0, feedback_id="one"))
    with CrabPath.open(saved, **given) as memory:
        assert memory.store.learned.get_feedback("one").status == "applied"
        assert memory.store.walk.get_clock("default").learned == 1
