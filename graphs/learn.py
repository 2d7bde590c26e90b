"""Apply waiting feedback and report the memory: for a cron job."""

import asyncio
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath.serving import served_retriever


class State(TypedDict, total=False):
    """Result of the lesson.

    Attributes:
        learned: Numbers of feedback records that were applied, refused, or failed.
        memory: Content of the memory, as in ``crabpath info``.
    """

    learned: dict[str, int]
    memory: dict[str, Any]


def build(
    retriever: CrabPathRetriever, checkpointer: Checkpointer = None
) -> CompiledStateGraph[State, None, State, State]:
    """Build the graph over the memory of one retriever."""
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
