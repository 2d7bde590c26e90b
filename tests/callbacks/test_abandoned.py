"""Runs that nobody waited for: cancelled, or streamed and left."""

import asyncio
import itertools

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnablePassthrough

from crabpath_retrievers.callbacks import (
    AsyncCrabPathCallbackHandler,
    CrabPathCallbackHandler,
    OutcomePolicy,
    Rule,
)

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
PROMPT = ChatPromptTemplate.from_template("{context}\n\n{input}")


@pytest.fixture(params=[CrabPathCallbackHandler, AsyncCrabPathCallbackHandler])
def silent(request, retriever, told):
    """Either handler, counting silence."""
    return request.param(retriever, SILENT, on_receipt=told)


@pytest.fixture(params=["model", "parser"])
def chain(request, retriever):
    """A chain that streams, ending with its model or with a parser."""
    model = GenericFakeChatModel(messages=itertools.repeat(AIMessage("Both are American.")))
    made = {"context": retriever, "input": RunnablePassthrough()} | PROMPT | model
    return made | StrOutputParser() if request.param == "parser" else made


def test_a_stream_that_is_read_counts(chain, silent, told):
    """Streaming to the end is as good as waiting for the answer."""
    assert len(list(chain.stream(QUESTION, {"callbacks": [silent]}))) > 1
    assert told.kinds == ["silent_success"]


def test_a_stream_that_is_left_does_not_count(chain, silent, told):
    """Who closes the stream has not accepted the answer; nothing stays open."""
    stream = chain.stream(QUESTION, {"callbacks": [silent]})
    assert all([next(stream), next(stream)])  # of the first part alone LangChain tells nothing
    stream.close()
    assert told == []
    assert len(silent._listener.runs) == 0


async def test_an_async_stream_that_is_read_counts(chain, silent, told):
    """The same in an event loop."""
    parts = [part async for part in chain.astream(QUESTION, {"callbacks": [silent]})]
    assert len(parts) > 1
    assert told.kinds == ["silent_success"]


async def test_an_async_stream_that_is_left_does_not_count(chain, silent, told):
    """The same in an event loop."""
    stream = chain.astream(QUESTION, {"callbacks": [silent]})
    assert all([await stream.__anext__(), await stream.__anext__()])
    await stream.aclose()
    await _until_closed(silent)
    assert told == []


def test_a_generator_whose_end_is_not_seen_does_not_count(retriever, silent, told):
    """The end of a bare generator looks as if it was read; in doubt nothing is learned."""

    def answer(questions):
        for question in questions:
            retriever.invoke(question)
        yield from ("Both", " are", " American.")

    stream = RunnableGenerator(answer).stream(QUESTION, {"callbacks": [silent]})
    assert [next(stream), next(stream)] == ["Both", " are"]
    stream.close()
    assert told == []


async def test_a_cancelled_run_does_not_count(retriever, silent, told):
    """A task that is cancelled is neither success nor failure."""
    waiting = asyncio.Event()

    async def think(_):
        waiting.set()
        await asyncio.sleep(60)

    chain = retriever | RunnableLambda(think)
    task = asyncio.create_task(chain.ainvoke(QUESTION, {"callbacks": [silent]}))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until_closed(silent)
    assert told == []


def test_what_never_ends_is_forgotten(retriever, told):
    """Streams that are neither read nor closed take a bounded place."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told, most_runs=3)
    runs = handler._listener.runs
    for number in range(50):
        runs.start(f"root {number}", None, None, "question")
        runs.start(f"child {number}", f"root {number}", None, "question")
    assert len(runs) <= 3 * 2


def test_what_is_old_is_forgotten(retriever, told):
    """Runs are kept for a time."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told, keep_seconds=1e-9)
    runs = handler._listener.runs
    runs.start("first", None, None, "question")
    runs.start("second", None, None, "question")
    assert len(runs) <= 1


async def _until_closed(handler):
    """LangChain closes what is below a run behind it."""
    for _ in range(100):
        if not len(handler._listener.runs):
            return
        await asyncio.sleep(0.02)
    pytest.fail("a run stays open")
