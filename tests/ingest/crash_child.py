"""Processes that ingest documents and are killed with SIGKILL at chosen steps.

Instead of documents the path of a folder to sync may be given.

Usage: ``crash_child.py DOCUMENTS STEP DIRECTORY [STEP DIRECTORY …]``. The imports, which take
longest, are made once; every ingest runs in a fork of its own.
"""

import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

from conftest import CRASH_SETTINGS, HashedWords  # beside this script
from langchain_core.documents import Document

from crabpath_retrievers.core.changes import (
    ConfirmIndexDeletions,
    MoveNodes,
    PublishStaged,
    PutEdges,
    StageNodes,
)
from crabpath_retrievers.crabpath import CrabPath

STEPS = {
    "staged": StageNodes,
    "published": PublishStaged,
    "linked": PutEdges,
    "emptied": ConfirmIndexDeletions,
    "moved": MoveNodes,
}


def die_at(memory, step):
    """Arrange for SIGKILL right after a step, or with half of the vectors written (``indexed``).

    ``staged:3`` is the third time that something is staged.
    """
    name, _, number = step.partition(":")
    seen = count(1)
    apply, upsert = memory.store.apply, memory.index.upsert

    def reached():
        return next(seen) == int(number or 1)

    def applied(changes):
        apply(changes)
        if name in STEPS and any(isinstance(c, STEPS[name]) for c in changes) and reached():
            os.kill(os.getpid(), signal.SIGKILL)

    def upserted(*columns):
        if name == "indexed" and reached():
            upsert(*(column[: len(column) // 2] for column in columns))
            os.kill(os.getpid(), signal.SIGKILL)
        upsert(*columns)

    memory.store.apply, memory.index.upsert = applied, upserted


def ingest(directory, rows, step):
    """Ingest, and die in between; a file beside the directory says that it begins."""
    with CrabPath.open(directory, embeddings=HashedWords(), settings=CRASH_SETTINGS) as memory:
        die_at(memory, step)
        Path(f"{directory}.started").touch()
        if isinstance(rows, str):
            memory.sync(rows)
        else:
            memory.add_documents([Document(**row) for row in rows])


def crash(directory, rows, step):
    """Let a process ingest and die; ``outside:0.2`` kills it after that many seconds."""
    child = os.fork()
    if child == 0:
        try:
            ingest(directory, rows, step)
        finally:
            os._exit(1)
    if step.startswith("outside"):
        while not Path(f"{directory}.started").exists():
            time.sleep(0.001)
        time.sleep(float(step.partition(":")[2]))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(f"the ingest to be killed at {step!r} came to its end")


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for step, directory in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        crash(directory, given, step)
