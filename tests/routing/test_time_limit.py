"""Waiting no longer than a given time, in a thread or on an event loop."""

import asyncio
import contextvars
import threading

import pytest

from crabpath_retrievers.core.time_limit import arun_with_timeout, run_with_timeout

NAME = contextvars.ContextVar("NAME", default="nobody")


async def test_what_takes_too_long_is_left_behind():
    """Both forms say so in the same words."""
    released = threading.Event()
    for waiting in (
        asyncio.to_thread(run_with_timeout, lambda: released.wait(5), 0.05),
        arun_with_timeout(lambda: released.wait(5), 0.05),
    ):
        with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
            await waiting
    released.set()


@pytest.mark.parametrize("seconds", [5.0, None])
async def test_a_time_limit_of_the_work_itself_is_its_own_error(seconds):
    def fail():
        msg = "the socket"
        raise TimeoutError(msg)

    with pytest.raises(TimeoutError, match=r"^the socket$"):
        await arun_with_timeout(fail, seconds)


def test_the_work_knows_the_context_of_the_caller():
    """Callbacks and traces of the host are found there."""
    NAME.set("ada")
    assert run_with_timeout(NAME.get, 5) == "ada"
