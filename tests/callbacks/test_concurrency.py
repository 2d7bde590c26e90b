"""Many chains at once, in threads and on one event loop."""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.runnables import RunnableLambda, RunnableParallel

from crabpath_retrievers.callbacks import (
    AsyncCrabPathCallbackHandler,
    CrabPathCallbackHandler,
    OutcomePolicy,
    Rule,
)

SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
QUESTIONS = ["Who is Scott Derrickson?", "Who was Ed Wood?", "What is Doctor Strange?"]


def chain(retriever):
    """Two retrievals at once, then an answer."""
    found = RunnableParallel(a=retriever, b=retriever)
    return found | RunnableLambda(lambda _: "An American director.")


def test_threads_do_not_mix_up_their_turns(retriever, told):
    """Eight threads share a handler: every chain gets its own two turns, each once."""
    handler = CrabPathCallbackHandler(retriever, on_receipt=told)
    asked = [(uuid.uuid4(), QUESTIONS[n % 3]) for n in range(24)]

    def ask(item):
        run_id, question = item
        chain(retriever).invoke(question, {"callbacks": [handler], "run_id": run_id})
        return question, handler.score(0.9, run_id=run_id)

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(ask, asked))
    turns = retriever.memory.store.turns
    for question, receipts in answered:
        assert [receipt.status for receipt in receipts] == ["applied"] * 2
        ids = [receipt.feedback_id.rsplit(":", 1)[1] for receipt in receipts]
        assert {turns.get(turn_id).query for turn_id in ids} == {question}
    assert len({feedback.turn_id for feedback, _ in told}) == 48
    assert len(handler._listener.runs) == 0


@pytest.mark.parametrize("kind", [CrabPathCallbackHandler, AsyncCrabPathCallbackHandler])
async def test_an_event_loop_is_not_blocked(retriever, told, kind):
    """Many chains on one loop learn without a blocking call in it."""
    handler = kind(retriever, SILENT, on_receipt=told)
    made = chain(retriever)
    await made.ainvoke(QUESTIONS[0], {"callbacks": [handler]})  # lazy imports of the host
    with blockbuster_ctx():
        asked = [made.ainvoke(QUESTIONS[n % 3], {"callbacks": [handler]}) for n in range(20)]
        assert len(await asyncio.gather(*asked)) == 20
    assert told.statuses == ["applied"] * 42
    assert len(handler._listener.runs) == 0


async def test_an_event_about_another_run_does_not_block(retriever, told):
    """A custom event that names a run is looked up off the loop."""
    from langchain_core.callbacks import adispatch_custom_event

    found = await retriever.ainvoke(QUESTIONS[0])
    turn_id = found[0].metadata["crabpath"]["turn_id"]
    handler = AsyncCrabPathCallbackHandler(retriever, on_receipt=told)

    async def say(_, config):
        event = {"score": 0.0, "turn_id": turn_id}
        await adispatch_custom_event("crabpath_feedback", event, config=config)

    with blockbuster_ctx():
        await RunnableLambda(say).ainvoke("no", {"callbacks": [handler]})
    assert [feedback.turn_id for feedback, _ in told] == [turn_id]
