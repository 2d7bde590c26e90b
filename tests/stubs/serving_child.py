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

from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes import ConsumeFeedback, MarkIndexed
from crabpath_retrievers.learning import recorder

STEPS = {"applied": ConsumeFeedback, "indexed": MarkIndexed}


def die():
    """Leave without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(memory, kind, number):
    """Arrange for death right after the transaction with the n-th change of a kind."""
    apply, seen = memory.store.apply, count(1)

    def applied(changes):
        results = apply(changes)
        if any(isinstance(change, kind) for change in changes) and next(seen) == number:
            die()
        return results

    memory.store.apply = applied


def serve(location, vectors, apply, step):
    """Ask and record without end."""
    settings = Settings(learning=LearningSettings(apply=apply))
    embeddings = DeterministicFakeEmbedding(size=16)
    memory = CrabPath.open(location, embeddings=embeddings, vectors=vectors, settings=settings)
    name, _, number = step.partition(":")
    if name in STEPS:
        # Index each episode as soon as possible.
        recorder._INDEX_BATCH, recorder._CHECK_INTERVAL = 1, 0.0
        die_after(memory, STEPS[name], int(number))
    for done in count(1):
        turn = memory.retrieve(f"Which fruit is red? {done % 7}").turn.id
        receipt = memory.record(Feedback(turn, 1.0, used=["a"], feedback_id=str(done)))
        print(receipt.feedback_id, flush=True)  # noqa: T201  read by the test
        if name == "returned" and done == int(number):
            die()


if __name__ == "__main__":
    serve(*sys.argv[1:])
