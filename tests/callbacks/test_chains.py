"""Chains of LangChain: what is learned when they end, fail, are left, or are spoken of."""

import asyncio
import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from blockbuster import blockbuster_ctx
from langchain_classic.retrievers import EnsembleRetriever, MultiQueryRetriever
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import (
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)

from crabpath_retrievers.callbacks import AsyncCrabPathCallbackHandler, CrabPathCallbackHandler
from tests.seams import count_open_runs

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
QUESTIONS = [QUESTION, "Who was Ed Wood?", "What is Doctor Strange?"]
ANSWER = "Yes: Scott Derrickson is an American director and Ed Wood was an American filmmaker."
RIGHT = "Scott Derrickson and Ed Wood are both American, so they share a nationality."
PROMPT = ChatPromptTemplate.from_template("{context}\n\n{input}")
EVENT = "crabpath_feedback"


def answer_with(retriever, model):
    """The usual chain: retrieve, fill the prompt, ask the model."""
    return {"context": retriever, "input": RunnablePassthrough()} | PROMPT | model


def rag(retriever):
    model = FakeListChatModel(responses=[ANSWER])
    return answer_with(retriever, model) | StrOutputParser()


def fails(error):
    def step(_):
        raise error

    return RunnableLambda(step)


@pytest.fixture(params=[CrabPathCallbackHandler, AsyncCrabPathCallbackHandler])
def either(request, retriever, silence, recorded):
    """Either handler, counting silence."""
    return request.param(retriever, silence, on_receipt=recorded)


def test_silence_teaches_a_little_by_a_policy_and_nothing_by_default(
    retriever, handler, silent, recorded
):
    assert rag(retriever).invoke(QUESTION, {"callbacks": [handler]}) == ANSWER
    retriever.invoke(QUESTION, {"callbacks": [silent]})  # answers nothing
    assert recorded == []
    rag(retriever).invoke(QUESTION, {"callbacks": [silent]})
    ((feedback, receipt),) = recorded
    assert (receipt.status, feedback.outcome, feedback.source) == ("applied", 0.2, "harvested")
    assert feedback.answer == ANSWER


@pytest.mark.parametrize(
    ("error", "repair", "outcomes"),
    [
        (ValueError("no JSON"), [], [-0.3]),
        (ValueError("no JSON"), [RunnableLambda(str)], []),
        (ConnectionError("down"), [], []),
        (TimeoutError("slow"), [], []),
    ],
)
def test_a_failed_chain_counts_against_its_turns(
    retriever, handler, recorded, error, repair, outcomes
):
    """But not a failure that a fallback repaired, and transport says nothing about documents."""
    chain = retriever | fails(error).with_fallbacks(repair)
    with nullcontext() if repair else pytest.raises(type(error)):
        chain.invoke(QUESTION, {"callbacks": [handler]})
    assert [feedback.outcome for feedback, _ in recorded] == outcomes
    assert recorded.kinds == ["chain_error"] * len(outcomes)


@pytest.mark.parametrize("kind", [CrabPathCallbackHandler, AsyncCrabPathCallbackHandler])
@pytest.mark.parametrize("named", [False, True])
async def test_a_correction_as_custom_event(retriever, recorded, kind, named):
    """A chain that knows better says so; it counts when the chain ends, or for a named turn."""
    handler = kind(retriever, on_receipt=recorded)
    found = await retriever.ainvoke(QUESTION)
    turn_id = found[0].metadata["crabpath"]["turn_id"]
    event = {"correction": RIGHT, **({"turn_id": turn_id} if named else {})}

    def judge(answer):
        dispatch_custom_event(EVENT, event)
        return answer

    async def ajudge(answer, config):
        await adispatch_custom_event(EVENT, event, config=config)
        return answer

    chain = rag(retriever) | RunnableLambda(judge, ajudge)
    if kind is CrabPathCallbackHandler:
        chain.invoke(QUESTION, {"callbacks": [handler]})
    else:
        with blockbuster_ctx():
            await chain.ainvoke(QUESTION, {"callbacks": [handler]})
    assert (recorded.kinds, recorded.statuses) == (["correction"], ["applied"])
    assert (recorded.turns == [turn_id]) == named
    assert (await retriever.ainvoke(QUESTION))[0].page_content.endswith(RIGHT)


def test_cited_documents_are_used(retriever, silent, recorded):
    second = retriever.invoke(QUESTION)[1].id
    answer = {"answer": "American", "citations": [{"source_id": second}]}
    (retriever | (lambda _: answer)).invoke(QUESTION, {"callbacks": [silent]})
    assert [feedback.used for feedback, _ in recorded] == [(second,)]


def several_questions(retriever):
    model = FakeListChatModel(responses=["Who is Scott Derrickson?\nWho is Ed Wood?"])
    return RunnableLambda(MultiQueryRetriever.from_llm(retriever=retriever, llm=model).invoke)


def of_any_input(retriever):
    """Arrays can be compared with nothing."""
    return (lambda _: {"input": np.zeros(2)}) | RunnableLambda(lambda _: retriever.invoke(QUESTION))


def ensemble(retriever):
    """Documents of the inner turn come back from the outer retriever."""
    return RunnableLambda(EnsembleRetriever(retrievers=[retriever], weights=[1.0]).invoke)


def two_at_once(retriever):
    """Two retrievals at once, then an answer."""
    found = RunnableParallel(a=retriever, b=retriever)
    return found | RunnableLambda(lambda _: "An American director.")


@pytest.mark.parametrize(
    ("make", "turns"), [(several_questions, 2), (ensemble, 1), (two_at_once, 2), (of_any_input, 1)]
)
def test_every_retrieval_under_one_root_is_learned_from_once(
    retriever, handler, recorded, make, turns
):
    run_id = uuid.uuid4()
    make(retriever).invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
    receipts = handler.score(0.0, run_id=run_id, source="human")
    assert [receipt.status for receipt in receipts] == recorded.statuses == ["applied"] * turns
    assert len(set(recorded.turns)) == turns


async def pull(parts, stream, limit):
    """Read ``limit`` parts of a stream, then close it; LangChain tells nothing of the first one."""
    for _ in range(limit):
        try:
            parts.append(await anext(stream) if hasattr(stream, "__anext__") else next(stream))
        except (StopIteration, StopAsyncIteration):
            return
    await (stream.aclose() if hasattr(stream, "aclose") else asyncio.to_thread(stream.close))


@pytest.mark.parametrize("ending", ["model", "parser"])
@pytest.mark.parametrize("method", ["stream", "astream"])
@pytest.mark.parametrize(("limit", "kinds"), [(999, ["silent_success"]), (2, [])])
async def test_a_stream_counts_when_it_is_read_to_its_end(
    retriever, either, recorded, ending, method, limit, kinds
):
    """Who closes the stream has not accepted the answer; nothing stays open."""
    model = GenericFakeChatModel(messages=itertools.repeat(AIMessage("Both are American.")))
    chain = answer_with(retriever, model)
    chain = chain | StrOutputParser() if ending == "parser" else chain
    parts = []
    await pull(parts, getattr(chain, method)(QUESTION, {"callbacks": [either]}), limit)
    assert len(parts) > 1
    await wait_until_closed(either)
    assert recorded.kinds == kinds


def test_a_generator_whose_end_is_not_seen_does_not_count(retriever, either, recorded):
    """The end of a bare generator looks as if it was read; in doubt nothing is learned."""

    def answer(questions):
        for question in questions:
            retriever.invoke(question)
        yield from ("Both", " are", " American.")

    stream = RunnableGenerator(answer).stream(QUESTION, {"callbacks": [either]})
    assert next(stream) == "Both"
    stream.close()
    assert recorded == []


async def test_a_cancelled_run_does_not_count(retriever, either, recorded):
    waiting = asyncio.Event()

    async def think(_):
        waiting.set()
        await asyncio.sleep(60)

    chain = retriever | RunnableLambda(think)
    task = asyncio.create_task(chain.ainvoke(QUESTION, {"callbacks": [either]}))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_closed(either)
    assert recorded == []


async def wait_until_closed(handler):
    """LangChain closes what is below a run behind it."""
    for _ in range(100):
        if not count_open_runs(handler):
            return
        await asyncio.sleep(0.02)
    pytest.fail("a run stays open")


@pytest.mark.parametrize(("limit", "most"), [({"most_runs": 3}, 6), ({"keep_seconds": 1e-9}, 2)])
def test_runs_that_never_end_are_forgotten(retriever, limit, most):
    """Streams that are neither read nor closed take a bounded place."""
    handler = CrabPathCallbackHandler(retriever, **limit)
    for _ in range(50):
        root = uuid.uuid4()
        handler.on_chain_start({}, QUESTION, run_id=root)
        handler.on_chain_start({}, QUESTION, run_id=uuid.uuid4(), parent_run_id=root)
    assert 0 < count_open_runs(handler) <= most


def test_threads_do_not_mix_up_their_turns(retriever, handler, recorded):
    """Eight threads share a handler: every chain gets its own two turns, each once."""
    asked = [(uuid.uuid4(), QUESTIONS[n % 3]) for n in range(12)]

    def ask(item):
        run_id, question = item
        two_at_once(retriever).invoke(question, {"callbacks": [handler], "run_id": run_id})
        return question, handler.score(0.9, run_id=run_id)

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(ask, asked))
    turns = retriever.memory.store.turns
    for question, receipts in answered:
        assert [receipt.status for receipt in receipts] == ["applied"] * 2
        ids = [receipt.feedback_id.rsplit(":", 1)[1] for receipt in receipts]
        assert {turns.get(turn_id).query for turn_id in ids} == {question}
    assert len(set(recorded.turns)) == 24
    assert count_open_runs(handler) == 0


async def test_an_event_loop_is_not_blocked(retriever, either, recorded):
    chain = two_at_once(retriever)
    await chain.ainvoke(QUESTION, {"callbacks": [either]})  # lazy imports of the host
    with blockbuster_ctx():
        asked = [chain.ainvoke(QUESTIONS[n % 3], {"callbacks": [either]}) for n in range(8)]
        assert len(await asyncio.gather(*asked)) == 8
    assert recorded.statuses == ["applied"] * 18
    assert count_open_runs(either) == 0
