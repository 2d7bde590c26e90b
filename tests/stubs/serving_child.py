"""A process that serves a memory, records feedback and is killed.

Usage: ``serving_child.py LOCATION VECTORS APPLY STEP``. It prints the id of every feedback that
``record`` has returned for. ``STEP`` says when it kills itself: ``returned:3`` right after the
third record, ``applied:3`` right after the third feedback was applied, ``indexed:3`` likewise;
``never`` goes on until somebody else does it.
"""

import os
import signal
import sys
from itertools import count

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from tests.seams import set_bounds, stop_after

STEPS = {"applied": "ConsumeFeedback", "indexed": "mark_indexed"}


def die():
    """Leave without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def serve(location, vectors, apply, step):
    """Ask and record without end."""
    settings = Settings(learning=LearningSettings(apply=apply))
    embeddings = DeterministicFakeEmbedding(size=16)
    memory = CrabPath.open(location, embeddings=embeddings, vectors=vectors, settings=settings)
    name, _, number = step.partition(":")
    if name in STEPS:
        # Index each episode as soon as possible.
        set_bounds(pytest.MonkeyPatch(), episodes_indexed=1, seconds_between_checks=0.0)
        stop_after(STEPS[name], int(number))
    for done in count(1):
        turn = memory.retrieve(f"Which fruit is red? {done % 7}").turn.id
        receipt = memory.record(Feedback(turn, 1.0, used=["a"], feedback_id=str(done)))
        print(receipt.feedback_id, flush=True)  # noqa: T201  read by the test
        if name == "returned" and done == int(number):
            die()


if __name__ == "__main__":
    serve(*sys.argv[1:])
