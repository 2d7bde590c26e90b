"""Kills the process that writes, for programs of tests that run in a process of their own."""

import os
import signal

from crabpath_retrievers.storage import GraphStore


def kill_after(change: type, times: int) -> None:
    """Kill this process once a store has applied changes of a type so many times."""
    left, apply = times, GraphStore.apply

    def apply_and_kill(store, changes):
        nonlocal left
        found = apply(store, changes)
        left -= any(isinstance(each, change) for each in changes)
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    GraphStore.apply = apply_and_kill
