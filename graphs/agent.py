"""An agent with a memory: documents before it thinks, a tool to look again, feedback afterwards."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath import CrabPathMiddleware, create_crabpath_tool
from langgraph_crabpath.serving import served_model, served_retriever

RULE = "Answer from the documents. Where they do not suffice, search the memory again."


class Context(TypedDict, total=False):
    """The user of a run; every user has a separate namespace."""

    user_id: str


def build(
    retriever: CrabPathRetriever, model: BaseChatModel, checkpointer: Checkpointer = None
) -> CompiledStateGraph[Any, Context, Any, Any]:
    """Build the agent over one retriever and one model that supports tools."""
    return create_agent(
        model,
        tools=[create_crabpath_tool(retriever)],
        system_prompt=RULE,
        middleware=[CrabPathMiddleware(retriever)],
        context_schema=Context,
        checkpointer=checkpointer,
    )


async def graph() -> CompiledStateGraph[Any, Context, Any, Any]:
    """The agent as a LangGraph server runs it."""
    return build(await served_retriever(), await served_model())
