"""The two drivers of one computation."""

import asyncio
import threading

import pytest

from crabpath_retrievers.core.driver import arun, perform, perform_sync_or_async, run


def total(*functions):
    """A computation that adds up what blocking functions return."""
    found = 0
    for function in functions:
        found += yield from perform(function)
    return found


def careful(function, otherwise):
    """A computation that handles the failure of its operation."""
    try:
        return (yield from perform(function))
    except ValueError:
        return otherwise


def fail(error):
    """A function that raises."""

    def raising():
        raise error

    return raising


async def both(make):
    """Results of both drivers on equal computations."""
    return run(make()), await arun(make())


async def test_results_come_back_into_the_computation():
    """Each operation's result is sent to where it was asked for."""
    assert await both(lambda: total(lambda: 1, lambda: 2)) == (3, 3)


async def test_arguments_reach_the_operation():
    """Positional and named arguments are passed on."""
    assert await both(lambda: perform(int, "ff", base=16)) == (255, 255)


async def test_a_computation_without_operations_just_returns():
    """Nothing is asked, the value comes at once."""
    assert await both(total) == (0, 0)


async def test_an_error_can_be_handled_by_the_computation():
    """It is raised where the operation was asked for."""
    assert await both(lambda: careful(fail(ValueError()), 7)) == (7, 7)


async def test_an_error_that_nobody_handles_reaches_the_caller():
    """Both drivers raise the very error of the operation."""
    error = KeyError("gone")
    with pytest.raises(KeyError) as caught:
        run(total(fail(error)))
    assert caught.value is error
    with pytest.raises(KeyError) as caught:
        await arun(total(fail(error)))
    assert caught.value is error


async def test_blocking_operations_leave_the_event_loop():
    """The async driver runs them in a worker thread, the sync one in the caller's."""
    here = threading.get_ident()
    blocking, native = await both(lambda: perform(threading.get_ident))
    assert blocking == here != native


async def test_what_blocks_in_a_row_runs_in_one_thread():
    """Going to a thread and back costs more than most operations; what lies between runs there."""
    seen = []

    def steps():
        for _ in range(3):
            seen.append((yield from perform(threading.get_ident)))
            seen.append(threading.get_ident())
        yield from perform_sync_or_async(lambda: None, lambda: asyncio.sleep(0))
        seen.append(threading.get_ident())

    await arun(steps())
    *before, after = seen
    assert len(set(before)) == 1
    assert after == threading.get_ident() != before[0]


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


async def test_a_native_form_is_awaited_on_the_loop():
    """Given both forms of one operation, each driver takes its own."""

    async def native():
        await asyncio.sleep(0)
        return "native"

    assert await both(lambda: perform_sync_or_async(lambda: "blocking", native)) == (
        "blocking",
        "native",
    )


async def test_cancelling_ends_the_computation_where_it_waits():
    """A cancelled task cleans up inside the computation and stays cancelled."""
    cleaned = []

    def steps():
        try:
            yield from perform_sync_or_async(lambda: None, lambda: asyncio.sleep(60))
        finally:
            cleaned.append(True)

    task = asyncio.create_task(arun(steps()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
