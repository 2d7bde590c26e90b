"""Waiting no longer than a given time, in a thread or on an event loop."""

import asyncio
import contextvars
import threading

import pytest

from crabpath_retrievers.core.time_limit import arun_with_timeout, run_with_timeout

OWN = TimeoutError("the socket")
NAME = contextvars.ContextVar("NAME", default="nobody")


def fail():
    """Fails by a time limit of its own."""
    raise OWN


def late_work(released):
    """Work that goes on until it is released."""
    return lambda: released.wait(5)


@pytest.fixture
def released():
    """Set at the end, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


async def test_what_takes_too_long_is_left_behind(released):
    """Both forms say so in the same words."""
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        await asyncio.to_thread(run_with_timeout, late_work(released), 0.05)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        await arun_with_timeout(late_work(released), 0.05)


@pytest.mark.parametrize("seconds", [5.0, None])
async def test_a_time_limit_of_the_work_itself_is_its_own_error(seconds):
    """Whether one waits for it with a limit or without."""
    with pytest.raises(TimeoutError) as told:
        await arun_with_timeout(fail, seconds)
    assert str(told.value) == "the socket"


def test_the_work_knows_the_context_of_the_caller():
    """Callbacks and traces of the host are found there."""
    NAME.set("ada")
    assert run_with_timeout(NAME.get, 5) == "ada"
