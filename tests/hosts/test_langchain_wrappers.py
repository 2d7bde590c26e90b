"""CrabPath inside the constructions of LangChain that take a retriever."""

import pytest
from host_answers import QUESTION, ids, texts, turn_of
from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import (
    EnsembleRetriever,
    MultiQueryRetriever,
)
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool

OTHER = "Who lived in Woodson County, Kansas?"


def make_chain(retriever):
    prompt = ChatPromptTemplate.from_template("{context}\n\n{input}")
    combine = create_stuff_documents_chain(FakeListChatModel(responses=["yes"]), prompt)
    return create_retrieval_chain(retriever, combine) | (lambda result: result["context"])


def make_history_aware(retriever):
    """Asks the question that the model made of the history."""
    prompt = ChatPromptTemplate.from_messages(
        [("placeholder", "{chat_history}"), ("user", "{input}")]
    )
    model = FakeListChatModel(responses=[QUESTION])
    return create_history_aware_retriever(model, retriever, prompt)


def make_ensemble(retriever):
    """The id stands in the metadata: two equal rankings merge into that one."""
    both = EnsembleRetriever(retrievers=[retriever, retriever], weights=[0.5, 0.5], id_key="id")
    return RunnableLambda(lambda given: given["input"]) | both


@pytest.mark.parametrize("make", [make_chain, make_history_aware, make_ensemble])
async def test_a_construction_returns_what_the_retriever_returns(retriever, make):
    built = make(retriever)
    given = {"input": QUESTION, "chat_history": [HumanMessage("Who is he?"), AIMessage("Ed.")]}
    for found in (built.invoke(given), await built.ainvoke(given)):
        assert ids(found) == ids(retriever.invoke(QUESTION))


def test_is_asked_several_questions(retriever):
    model = FakeListChatModel(responses=[f"{QUESTION}\n{OTHER}"])
    found = MultiQueryRetriever.from_llm(retriever=retriever, llm=model).invoke("anything")
    wanted = retriever.invoke(QUESTION) + retriever.invoke(OTHER)
    assert sorted(texts(found)) == sorted(set(texts(wanted)))


async def test_is_a_tool(retriever):
    """The model gets the texts; the artifact of the message carries the documents themselves."""
    tool = create_retriever_tool(
        retriever, "search", "Searches passages.", response_format="content_and_artifact"
    )
    call = {"type": "tool_call", "name": "search", "id": "1", "args": {"query": QUESTION}}
    for message in (tool.invoke(call), await tool.ainvoke(call)):
        assert message.content == "\n\n".join(texts(retriever.invoke(QUESTION)))
        assert ids(message.artifact) == ids(retriever.invoke(QUESTION))
        assert turn_of(message.artifact)
