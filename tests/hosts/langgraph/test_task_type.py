"""The type of task for which a graph runs, in the record of the turn."""

from dataclasses import dataclass

import pytest
from langchain.agents import create_agent
from langgraph.graph import StateGraph
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from langgraph_crabpath import CrabPathMiddleware, crabpath_retrieve, create_crabpath_tool


class State(TypedDict, total=False):
    """A question and its documents."""

    question: str
    documents: list
    turn_id: str


@dataclass
class Context:
    """What a program tells of a run."""

    task_type: str | None


def built(retriever, **options):
    """A graph that retrieves."""
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("retrieve", crabpath_retrieve(retriever, **options))
    builder.set_entry_point("retrieve")
    return builder.compile()


def task_of(retriever, turn):
    """Type of the task of a turn."""
    return retriever.memory.explain(turn).turn.task_type


def test_the_first_place_that_tells_it_counts(retriever, question):
    """Option, context, configurable, retriever."""
    refunds = CrabPathRetriever(memory=retriever.memory, task_type="field")
    asked, config = {"question": question}, {"configurable": {"task_type": "configurable"}}
    context = Context("context")

    def task(graph, **given):
        return task_of(retriever, graph.invoke(asked, **given)["turn_id"])

    assert task(built(retriever)) is None
    assert task(built(refunds)) == "field"
    assert task(built(refunds), config=config) == "configurable"
    assert task(built(refunds), config=config, context=context) == "context"
    fixed = built(refunds, task_type="option")
    assert task(fixed, config=config, context=context) == "option"


def test_a_function_tells_it_of_the_run(retriever, question):
    """None leaves it to the retriever."""
    node = crabpath_retrieve(
        retriever, task_type=lambda _runtime, config: config["configurable"].get("kind")
    )
    for given, told in (({"kind": "cancel"}, "cancel"), ({}, None)):
        found = node.invoke({"question": question}, {"configurable": given})
        assert task_of(retriever, found["turn_id"]) == told


async def test_without_blocking(retriever, question):
    """In an async graph."""
    found = await built(retriever, task_type="refund").ainvoke({"question": question})
    assert task_of(retriever, found["turn_id"]) == "refund"


def test_middleware(retriever, model, question):
    """An agent's turn carries it."""
    middleware = CrabPathMiddleware(retriever, task_type="refund")
    agent = create_agent(model, [], middleware=[middleware])
    result = agent.invoke({"messages": [("user", question)]})
    assert [task_of(retriever, turn) for turn in result["crabpath_turns"]] == ["refund"]


def test_tool(retriever, question):
    """A tool's turn carries it, and the model cannot choose it."""
    tool = create_crabpath_tool(retriever, task_type="refund")
    assert list(tool.args) == ["query"]
    call = {"type": "tool_call", "name": tool.name, "id": "1", "args": {"query": question}}
    documents = tool.invoke(call).artifact
    turn = documents[0].metadata["crabpath"]["turn_id"]
    assert task_of(retriever, turn) == "refund"


def test_one_that_cannot_be_kept_is_refused(retriever, question):
    """With a sentence."""
    with pytest.raises(InvalidInputError, match="task_type must be a text"):
        built(retriever, task_type=" ").invoke({"question": question})
