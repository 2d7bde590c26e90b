"""A process that replays sessions and is killed.

Usage: ``replaying_child.py MEMORY SESSIONS CHECKPOINT STEP``; ``RecordTurn:3`` is right after the
third turn is written, ``ConsumeFeedback:3`` right after the third feedback is learned from.
"""

import os
import signal
import sys
from itertools import count

from learned_memory import EMBEDDINGS

from crabpath_retrievers import CrabPath


def main(place, sessions, checkpoint, step):
    """Replay, and die in between."""
    kind, _, number = step.partition(":")
    with CrabPath.open(place, embeddings=EMBEDDINGS) as memory:
        apply, seen = memory.store.apply, count(1)

        def applied(changes):
            results = apply(changes)
            for change in changes:
                if type(change).__name__ == kind and next(seen) == int(number):
                    os.kill(os.getpid(), signal.SIGKILL)
            return results

        memory.store.apply = memory.store._recorder._write = applied
        memory.learning.replay(sessions, checkpoint=checkpoint or None)


if __name__ == "__main__":
    main(*sys.argv[1:])
