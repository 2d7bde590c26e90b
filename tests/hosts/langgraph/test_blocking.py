"""Nothing that the adapter does in an async graph blocks the event loop."""

import asyncio
import time

import pytest
from blockbuster import BlockingError, blockbuster_ctx
from host_answers import block_of
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from crabpath_retrievers import OutcomePolicy, Rule
from langgraph_crabpath import (
    CrabPathMiddleware,
    crabpath_feedback,
    crabpath_retrieve,
    create_crabpath_tool,
)

CONFIG = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    question: str
    documents: list
    turn_id: str
    feedback: dict


def graph(retriever, *record):
    """Retrieve, record."""
    builder = StateGraph(State)
    builder.add_sequence([("retrieve", crabpath_retrieve(retriever)), *record])
    builder.set_entry_point("retrieve")
    return builder.compile(checkpointer=InMemorySaver())


async def test_nodes_do_not_block(retriever, question):
    built = graph(retriever, ("record", crabpath_feedback(retriever, ask=True)))
    with blockbuster_ctx():
        await built.ainvoke({"question": question}, CONFIG)
        result = await built.ainvoke(Command(resume="Both were American."), CONFIG)
    assert result["feedback"]["status"] == "applied"


async def test_many_runs_at_once_keep_their_users_apart(retriever, question):
    """Forty runs on one event loop: none blocks it, each has its own turn and namespace."""
    built = graph(retriever)
    users = [f"user {number % 4}" for number in range(40)]
    configs = [
        {"configurable": {"user_id": user, "thread_id": str(number)}}
        for number, user in enumerate(users)
    ]
    with blockbuster_ctx():
        results = await asyncio.gather(
            *(built.ainvoke({"question": question}, config) for config in configs)
        )
    assert [block_of(result["documents"])["namespace"] for result in results] == users
    assert len({result["turn_id"] for result in results}) == len(users)


async def test_a_blocking_node_would_be_noticed(retriever, question):
    async def blocks(_state):
        time.sleep(0.01)  # noqa: ASYNC251  meant to be caught

    with blockbuster_ctx(), pytest.raises(BlockingError):
        await graph(retriever, ("record", blocks)).ainvoke({"question": question}, CONFIG)


async def test_an_agent_does_not_block(retriever, question, chat_server, model):
    """Neither does the middleware, its policy, what it takes back, nor the tool."""
    chat_server.says = lambda body: (
        {"query": "Ed Wood"} if body["messages"][-1]["content"] == question else "Yes."
    )
    policy = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
    middleware = CrabPathMiddleware(retriever, policy=policy)
    tools = [create_crabpath_tool(retriever)]
    agent = create_agent(model, tools, middleware=[middleware], checkpointer=InMemorySaver())
    # The client reads certificates when it is first used.
    await model.ainvoke("Hello")
    with blockbuster_ctx():
        await agent.ainvoke({"messages": [("user", question)]}, CONFIG)
        said = {"messages": [("user", "Thanks")], "crabpath_feedback": "down"}
        result = await agent.ainvoke(said, CONFIG)
    statuses = [receipt["status"] for receipt in result["crabpath_receipts"]]
    assert statuses == ["applied"] * 3
