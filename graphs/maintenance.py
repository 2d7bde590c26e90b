"""Learn from the feedback that waits, bring the indexes up to date, report. For a cron job."""

import asyncio
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath.serving import served_retriever


class State(TypedDict, total=False):
    """What was done, and what the memory holds then.

    Attributes:
        learned: How much feedback was applied, refused, or failed.
        memory: As ``crabpath info`` tells it.
    """

    learned: dict[str, int]
    memory: dict[str, Any]


def build(
    retriever: CrabPathRetriever, checkpointer: Checkpointer = None
) -> CompiledStateGraph[State, None, State, State]:
    """The graph over the memory of one retriever."""
    memory = retriever.memory

    async def learn(state: State) -> State:  # noqa: ARG001  LangGraph's name
        return {"learned": (await memory.aio.learning.learn_waiting())._asdict()}

    async def report(state: State) -> State:  # noqa: ARG001
        return {"memory": await asyncio.to_thread(memory.info)}

    builder = StateGraph(State)
    builder.add_node("learn", learn)
    builder.add_node("report", report)
    builder.add_edge(START, "learn")
    builder.add_edge("learn", "report")
    builder.add_edge("report", END)
    return builder.compile(checkpointer=checkpointer)


async def graph() -> CompiledStateGraph[State, None, State, State]:
    """The graph as a LangGraph server runs it."""
    return build(await served_retriever())
