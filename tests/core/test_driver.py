"""The two drivers of one computation."""

import asyncio
import contextvars
import gc
import threading
import time
from unittest.mock import MagicMock

import pytest

from crabpath_retrievers.core.calls import look_again, run_with_timeout
from crabpath_retrievers.integration import (
    arun,
    arun_with_timeout,
    perform,
    perform_sync_or_async,
    run,
)


def add_up(*functions):
    """A computation that adds up what blocking functions return; a ValueError counts 7."""
    found = 0
    for function in functions:
        try:
            found += yield from perform(function)
        except ValueError:
            found += 7
    return found


def fail(error):
    def raising():
        raise error

    return raising


async def native():
    await asyncio.sleep(0)
    return "native"


@pytest.mark.parametrize(
    ("make", "results"),
    [
        (add_up, (0, 0)),
        (lambda: add_up(lambda: 1, lambda: 2), (3, 3)),
        (lambda: add_up(fail(ValueError()), lambda: 1), (8, 8)),
        (lambda: perform(int, "ff", base=16), (255, 255)),
        (lambda: perform_sync_or_async(lambda: "blocking", native), ("blocking", "native")),
    ],
    ids=["no operation", "results", "handled error", "arguments", "a form for each driver"],
)
async def test_both_drivers_compute(make, results):
    """An error that nobody handles reaches the caller."""
    assert (run(make()), await arun(make())) == results
    with pytest.raises(KeyError):
        run(add_up(fail(KeyError())))
    with pytest.raises(KeyError):
        await arun(add_up(fail(KeyError())))


def test_what_is_interrupted_between_two_operations_is_closed():
    """A signal handler raises an exception anywhere, such as a task's time limit."""
    steps = MagicMock()
    steps.send.side_effect = KeyError
    with pytest.raises(KeyError):
        run(steps)
    steps.close.assert_called_once_with()


async def test_cancelling_while_a_thread_works_ends_the_computation_there():
    """What it does at that moment is finished, then it cleans up, and nothing further is done."""
    begun, go_on, cleaned, done = threading.Event(), threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        go_on.wait(5)
        done.append("slow")

    def steps():
        try:
            yield from perform(slow)
            yield from perform(done.append, "never")
        finally:
            cleaned.set()

    task = asyncio.create_task(arun(steps()))
    await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(cleaned.wait, 5)
    assert done == ["slow"]


async def test_cancelling_ends_the_computation_where_it_waits():
    cleaned = []

    def steps():
        try:
            yield from perform_sync_or_async(lambda: None, lambda: asyncio.sleep(60))
        finally:
            cleaned.append(True)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(arun(steps()), 0.01)
    assert cleaned == [True]


NAME = contextvars.ContextVar("NAME", default="nobody")


@pytest.mark.parametrize("seconds", [5.0, None])
async def test_work_in_a_thread_of_its_own_has_its_errors_and_the_context_of_the_caller(seconds):
    """A time limit of the work itself is its own error; traces of the host are in the context."""

    def fail_late():
        msg = "the socket"
        raise TimeoutError(msg)

    with pytest.raises(TimeoutError, match=r"^the socket$"):
        await arun_with_timeout(fail_late, seconds)
    NAME.set("ada")
    assert run_with_timeout(NAME.get, 5) == "ada"


async def test_who_looks_again_leaves_the_thread_to_others():
    """However many look for what does not come; what they find in the end reaches each of them."""
    come = threading.Event()

    def look():
        return come.is_set() and "found"

    looking = [
        asyncio.create_task(arun(perform(look_again, look, lambda: True))) for _ in range(80)
    ]
    await asyncio.sleep(0)
    try:
        assert await asyncio.wait_for(arun(perform(lambda: "done")), 60) == "done"
        assert not any(task.done() for task in looking)
    finally:
        come.set()
    assert await asyncio.gather(*looking) == ["found"] * 80


def test_what_does_not_come_any_more_is_not_looked_for():
    seen = []
    assert look_again(lambda: seen.append("look"), lambda: len(seen) < 3) is None
    assert len(seen) == 3


async def test_cancelling_leaves_all_threads_to_those_who_come_later():
    """Before a thread has begun, while it waits for its turn, and while it works."""
    for number in range(50):
        given = [asyncio.create_task(arun(perform(time.sleep, 0.001))) for _ in range(80)]
        await asyncio.sleep(0.001 * (number % 3))
        for task in given:
            task.cancel()
        await asyncio.gather(*given, return_exceptions=True)
    later = [arun(perform(time.sleep, 0.001)) for _ in range(80)]
    await asyncio.wait_for(asyncio.gather(*later), 60)


def test_threads_end_with_their_event_loop():
    before = threading.active_count()

    async def work():
        await asyncio.gather(*(arun(perform(time.sleep, 0.001)) for _ in range(80)))

    for _ in range(3):
        asyncio.run(work())
    gc.collect()
    until = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before
