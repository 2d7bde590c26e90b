"""A memory that leaves learning to others can be told to learn from what waits."""

import pytest
from blockbuster import blockbuster_ctx

from crabpath_retrievers import Feedback, StoreUnavailableError


def test_learns_from_what_waits(open_memory, host_of):
    """All of it is applied once, and indexed."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        for _ in range(3):
            memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        memory.record(Feedback("nobody", 1.0))
        assert memory.learning.learn_waiting() == (3, 1, 0)
        assert (host.learned(), memory.store.learned.count_unindexed_episodes()) == (3, 0)
        assert memory.learning.learn_waiting() == (0, 0, 0)


async def test_does_so_off_the_event_loop(open_memory, host_of):
    """The async form blocks nothing."""
    with open_memory(apply="external") as memory:
        memory.record(Feedback(host_of(memory).ask(), 1.0))
        with blockbuster_ctx():
            assert await memory.aio.learning.learn_waiting() == (1, 0, 0)


def test_a_closed_memory_says_so(open_memory):
    """The sentence says what to do."""
    with open_memory() as memory:
        pass
    with pytest.raises(StoreUnavailableError, match="open it again"):
        memory.learning.learn_waiting()
