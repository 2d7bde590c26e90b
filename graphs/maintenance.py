"""Measure, prune, connect and compact the memory: for a cron job, once a day."""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath.serving import served_retriever


class State(TypedDict, total=False):
    """What to do, and what was done.

    Attributes:
        dry_run: Whether to report only what would change.
        report: The run's id, for ``crabpath maintain --undo``, and the result of every step.
    """

    dry_run: bool
    report: dict[str, Any]


def build(
    retriever: CrabPathRetriever, checkpointer: Checkpointer = None
) -> CompiledStateGraph[State, None, State, State]:
    """Build the graph over the memory of one retriever."""
    maintenance = retriever.memory.aio.maintenance

    async def maintain(state: State) -> State:
        report = await maintenance.run(dry_run=state.get("dry_run", False))
        return {"report": report.to_dict()}

    builder = StateGraph(State)
    builder.add_node("maintain", maintain)
    builder.add_edge(START, "maintain")
    builder.add_edge("maintain", END)
    return builder.compile(checkpointer=checkpointer)


async def graph() -> CompiledStateGraph[State, None, State, State]:
    """The graph as a LangGraph server runs it."""
    return build(await served_retriever())
