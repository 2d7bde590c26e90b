"""Chains of LangChain: what is learned when they end, fail, or are spoken of."""

import uuid

import numpy as np
import pytest
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import EnsembleRetriever, MultiQueryRetriever
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough

from crabpath_retrievers.callbacks import (
    AsyncCrabPathCallbackHandler,
    CrabPathCallbackHandler,
    OutcomePolicy,
    Rule,
)

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
ANSWER = "Yes: Scott Derrickson is an American director and Ed Wood was an American filmmaker."
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
PROMPT = ChatPromptTemplate.from_template("{context}\n\n{input}")


def rag(retriever, answer=ANSWER):
    """The usual chain: retrieve, fill the prompt, ask the model, take its text."""
    found = {"context": retriever, "input": RunnablePassthrough()}
    return found | PROMPT | FakeListChatModel(responses=[answer]) | StrOutputParser()


def fails(error):
    """A step that raises."""

    def step(_):
        raise error

    return RunnableLambda(step)


def turn(feedback):
    """The turn that feedback is about."""
    return feedback.turn_id


def test_learns_nothing_from_silence_unless_told_so(retriever, handler, told):
    """A chain that ends teaches nothing by default."""
    assert rag(retriever).invoke(QUESTION, {"callbacks": [handler]}) == ANSWER
    assert told == []


def test_inputs_of_any_kind_are_followed(retriever, handler):
    """Arrays can be compared with nothing."""
    run_id = uuid.uuid4()
    chain = RunnableLambda(lambda _: retriever.invoke(QUESTION))
    chain.invoke({"input": np.zeros(2)}, {"callbacks": [handler], "run_id": run_id})
    assert [receipt.status for receipt in handler.score(1, run_id=run_id)] == ["applied"]


def test_learns_a_little_from_silence_when_told_so(retriever, told):
    """Opted in, an answer counts a fifth, and its text tells which documents it rests on."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
    rag(retriever).invoke(QUESTION, {"callbacks": [handler]})
    ((feedback, receipt),) = told
    assert (receipt.status, feedback.outcome, feedback.source) == ("applied", 0.2, "harvested")
    assert feedback.answer == ANSWER
    explained = retriever.memory.explain(feedback.turn_id)
    assert explained is not None


def test_a_chain_without_answer_is_no_silent_success(retriever, told):
    """A retrieval alone answers nothing."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
    retriever.invoke(QUESTION, {"callbacks": [handler]})
    assert told == []


def test_a_failed_chain_counts_against_its_turns(retriever, handler, told):
    """An error that reaches the root is a partial failure."""
    with pytest.raises(ValueError, match="no JSON"):
        (retriever | fails(ValueError("no JSON"))).invoke(QUESTION, {"callbacks": [handler]})
    ((feedback, receipt),) = told
    assert (told.kinds, receipt.status, feedback.outcome) == (["chain_error"], "applied", -0.3)


def test_a_caught_error_is_none(retriever, handler, told):
    """What a fallback repaired is no failure of the chain."""
    step = fails(ValueError("no JSON")).with_fallbacks([RunnableLambda(str)])
    (retriever | step).invoke(QUESTION, {"callbacks": [handler]})
    assert told == []


@pytest.mark.parametrize("error", [ConnectionError("down"), TimeoutError("slow")])
def test_failed_transport_says_nothing_about_documents(retriever, handler, told, error):
    """A network that fails is no failure of the documents."""
    with pytest.raises(type(error)):
        (retriever | fails(error)).invoke(QUESTION, {"callbacks": [handler]})
    assert told == []


def test_a_correction_changes_the_next_retrieval(retriever, handler):
    """The host says what was right by run id: the next question finds it first."""
    run_id = uuid.uuid4()
    rag(retriever).invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
    before = [d.id for d in retriever.invoke(QUESTION)]
    right = "Scott Derrickson and Ed Wood are both American, so they share a nationality."
    (receipt,) = handler.correct(right, run_id=run_id)
    assert receipt.status == "applied"
    after = retriever.invoke(QUESTION)
    assert after[0].page_content == right
    assert right not in before


def test_a_correction_as_custom_event_changes_the_next_retrieval(retriever, handler, told):
    """A chain that knows better says so with dispatch_custom_event; it counts when it ends."""
    right = "Derrickson and Wood share the American nationality."

    def judge(answer):
        dispatch_custom_event("crabpath_feedback", {"correction": right})
        return answer

    (rag(retriever) | judge).invoke(QUESTION, {"callbacks": [handler]})
    assert (told.kinds, told.statuses) == (["correction"], ["applied"])
    assert retriever.invoke(QUESTION)[0].page_content == right


async def test_an_async_chain_dispatches_a_correction(retriever, told):
    """The async handler hears the same, and has learned when the chain returns."""
    handler = AsyncCrabPathCallbackHandler(retriever, on_receipt=told)
    right = "Derrickson and Wood share the American nationality."

    async def judge(answer, config):
        await adispatch_custom_event("crabpath_feedback", {"correction": right}, config=config)
        return answer

    await (rag(retriever) | RunnableLambda(judge)).ainvoke(QUESTION, {"callbacks": [handler]})
    assert (told.kinds, told.statuses) == (["correction"], ["applied"])
    assert (await retriever.ainvoke(QUESTION))[0].page_content == right


def test_create_retrieval_chain_is_understood(retriever, told):
    """Its answer is found beside its context."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
    combine = create_stuff_documents_chain(FakeListChatModel(responses=[ANSWER]), PROMPT)
    create_retrieval_chain(retriever, combine).invoke({"input": QUESTION}, {"callbacks": [handler]})
    ((feedback, _),) = told
    assert feedback.answer == ANSWER


def test_cited_documents_are_used(retriever, told):
    """Structured output that names documents tells which were used."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)

    second = retriever.invoke(QUESTION)[1].id
    answer = {"answer": "American", "citations": [{"source_id": second}]}
    (retriever | (lambda _: answer)).invoke(QUESTION, {"callbacks": [handler]})
    ((feedback, _),) = told
    assert feedback.used == (second,)


def test_every_retrieval_under_one_root_is_learned_from(retriever, handler, told):
    """MultiQueryRetriever asks twice: both turns get what is said of the chain."""
    model = FakeListChatModel(responses=["Who is Scott Derrickson?\nWho is Ed Wood?"])
    several = MultiQueryRetriever.from_llm(retriever=retriever, llm=model)
    run_id = uuid.uuid4()
    (RunnableLambda(several.invoke)).invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
    handler.score(0.0, run_id=run_id, source="human")
    assert told.statuses == ["applied", "applied"]
    assert len({turn(feedback) for feedback, _ in told}) == 2


def test_an_ensemble_is_one_turn(retriever, handler, told):
    """The outer retriever returns documents of the inner turn: it is told once."""
    both = EnsembleRetriever(retrievers=[retriever], weights=[1.0])
    run_id = uuid.uuid4()
    RunnableLambda(both.invoke).invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
    assert [r.status for r in handler.score(1, run_id=run_id)] == ["applied"]


def test_parallel_branches_share_a_root(retriever, handler):
    """RunnableParallel runs its branches in threads; both turns belong to the chain."""
    run_id = uuid.uuid4()
    both = RunnableParallel(a=retriever, b=retriever)
    both.invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
    assert len(handler.score(1, run_id=run_id)) == 2


def test_a_batch_has_one_root_per_input(retriever, told):
    """Every input of a batch is a chain of its own."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
    rag(retriever).batch([QUESTION, "Who was Ed Wood?"], {"callbacks": [handler]})
    assert told.statuses == ["applied", "applied"]
    assert len({turn(feedback) for feedback, _ in told}) == 2
