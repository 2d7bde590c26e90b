"""Many records at once: each is applied once, and the event loop stays free."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from blockbuster import blockbuster_ctx

from crabpath_retrievers import Feedback
from crabpath_retrievers.retriever import CrabPathRetriever


@pytest.mark.parametrize("apply", ["inline", "background"])
def test_two_hundred_records_from_eight_threads(open_memory, host_of, apply):
    """None is lost, none is applied twice, and what they count adds up."""
    with open_memory(apply=apply) as memory:
        host = host_of(memory)
        turns = [host.ask() for _ in range(200)]
        with ThreadPoolExecutor(8) as pool:
            receipts = list(
                pool.map(lambda turn: memory.record(Feedback(turn, 1.0, used=["a"])), turns)
            )
        memory._services.recorder._worker.drain()
        expected = "applied" if apply == "inline" else "waiting"
        assert {receipt.status for receipt in receipts} == {expected}
        assert memory.store.learned.count_feedback() == {"waiting": 0, "applied": 200, "refused": 0}
        assert host.learned() == 200
        assert host.usage() == {"a": (200.0, 0.0), "b": (0.0, 200.0), "c": (0.0, 200.0)}


def test_two_memories_on_one_store_learn_together(open_memory, host_of):
    """Eight threads on two memories of one process meet in the store, and all are applied."""
    with open_memory() as one, open_memory() as two:
        host = host_of(one)
        turns = [host.ask() for _ in range(40)]
        work = list(zip(turns, itertools.cycle((one, two)), strict=False))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda job: job[1].record(Feedback(job[0], 1.0, used=["a"])), work))
        for memory in (one, two):  # one that met too many others is applied with the next
            memory.record(Feedback(host.ask(), 1.0, used=["a"]))
        assert host.learned() == 42
        assert host.usage()["a"] == (42.0, 0.0)


def test_contradictions_at_the_same_time(memory, host):
    """Of eight threads that judge one turn, one is heard."""
    turn = host.ask()
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda z: memory.record(Feedback(turn, z)), [1.0, -1.0] * 4))
    assert sorted(receipt.status for receipt in receipts) == ["applied", *["refused"] * 7]
    assert host.learned() == 1


def test_one_id_at_the_same_time(memory, host):
    """Of eight threads that record one feedback, all are told that it is applied."""
    feedback = Feedback(host.ask(), 1.0, used=["a"])
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(memory.record, [feedback] * 8))
    assert {receipt.status for receipt in receipts} == {"applied"}
    assert host.usage()["a"] == (1.0, 0.0)


@pytest.mark.parametrize("apply", ["inline", "background", "external"])
async def test_arecord_does_not_block(open_memory, apply):
    """Neither of the memory nor of the retriever, whoever learns."""
    memory = await asyncio.to_thread(open_memory, apply=apply)
    retriever = CrabPathRetriever(memory=memory)
    with blockbuster_ctx():
        for _ in range(2):
            found = await retriever.ainvoke("Which fruit is red?")
            turn = found[0].metadata["crabpath"]["turn_id"]
            receipt = await retriever.arecord(turn, 1.0, used=["a"])
            assert receipt.status == ("applied" if apply == "inline" else "waiting")
        assert (await memory.aio.record(Feedback("nope", 1.0))).status != "applied"
    await asyncio.to_thread(memory.close)


async def test_a_look_for_the_episodes_of_others_does_not_block(memory):
    """The query behind which it is due hands it to a thread off the loop."""
    retriever = CrabPathRetriever(memory=memory)
    with blockbuster_ctx():
        memory._services.recorder._checked_at -= 1
        await retriever.ainvoke("Which fruit is red?")
        assert not memory._services.recorder.is_backlog_due()


async def test_fifty_arecords_at_once(memory, host):
    """All are applied."""
    turns = [await asyncio.to_thread(host.ask) for _ in range(50)]
    receipts = await asyncio.gather(*(memory.aio.record(Feedback(turn, 1.0)) for turn in turns))
    assert [receipt.status for receipt in receipts] == ["applied"] * 50
