"""Retrieval as a tool of an agent."""

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage

from crabpath_retrievers import InvalidInputError
from langgraph_crabpath import create_crabpath_tool, format_documents


def ids(documents):
    """The ids of documents, in order."""
    return [document.id for document in documents]


def call(query):
    """A call as a model makes it."""
    return {"type": "tool_call", "name": "search_memory", "id": "1", "args": {"query": query}}


async def test_gives_text_to_the_model_and_documents_to_the_graph(retriever, question, called):
    """The content is delimited data; the artifact carries the documents with their turn."""
    message = await called(create_crabpath_tool(retriever), call(question))
    assert message.content == format_documents(message.artifact)
    assert ids(message.artifact) == ids(retriever.invoke(question))
    assert all("turn_id" in document.metadata["crabpath"] for document in message.artifact)


def test_lets_the_model_choose_the_query_only(retriever):
    """Neither namespace nor k nor configuration is an argument of the model's."""
    tool = create_crabpath_tool(retriever, name="look", description="Looks.")
    assert (tool.name, tool.description) == ("look", "Looks.")
    assert list(tool.args) == ["query"]


def test_takes_the_options_of_the_retriever(retriever, question):
    """The program, not the model, says how many documents are returned."""
    message = create_crabpath_tool(retriever, options={"k": 1}).invoke(call(question))
    assert ids(message.artifact) == ids(retriever.invoke(question, k=1))


async def test_searches_the_memory_of_who_asks(retriever, question, called):
    """What the model sends as a namespace is ignored; the configuration counts."""
    sent = call(question)
    sent["args"] |= {"namespace": "bob", "config": {"configurable": {"user_id": "bob"}}}
    message = await called(
        create_crabpath_tool(retriever), sent, {"configurable": {"user_id": "ann"}}
    )
    assert {d.metadata["crabpath"]["namespace"] for d in message.artifact} == {"ann"}


async def test_tells_the_model_about_an_empty_query(retriever, called):
    """The agent goes on; the model reads what to do."""
    message = await called(create_crabpath_tool(retriever), call("  "))
    assert (message.status, message.content) == (
        "error",
        "the query is empty: pass a question or some words",
    )


def test_refuses_what_is_no_retriever():
    """Any other object is refused when the tool is made."""
    with pytest.raises(InvalidInputError, match="pass a CrabPathRetriever, not a str"):
        create_crabpath_tool("memory")


async def test_works_in_an_agent(retriever, question, called, chat_server, model):
    """A real client calls it over the wire, for the user of the run, and its hops are streamed."""
    chat_server.says = lambda body: (
        {"query": question} if body["messages"][-1]["role"] == "user" else "Yes, both."
    )
    agent = create_agent(model, [create_crabpath_tool(retriever)])
    config = {"configurable": {"user_id": "ann"}}
    result = await called(agent, {"messages": [{"role": "user", "content": "Same?"}]}, config)
    (message,) = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert ids(message.artifact) == ids(retriever.invoke(question))
    assert {d.metadata["crabpath"]["namespace"] for d in message.artifact} == {"ann"}
    assert chat_server.requests[1]["messages"][-1]["content"] == message.content
    stream = agent.stream({"messages": [("user", "Same?")]}, config, stream_mode="custom")
    assert [event["type"] for event in stream][-1] == "crabpath_retrieved"
