"""Retrieve, generate, wait for a thumb or correction of a person, and record it."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve, format_documents
from langgraph_crabpath.serving import served_model, served_retriever

RULE = "Answer the question from the documents, shortly. Say so when they do not answer it."


class Context(TypedDict, total=False):
    """The user of a run; every user has a separate namespace."""

    user_id: str


class State(TypedDict, total=False):
    """State of the graph, from question to receipt."""

    question: str
    documents: list[Document]
    turn_id: str
    answer: str
    feedback: dict[str, Any]


def build(
    retriever: CrabPathRetriever, model: BaseChatModel, checkpointer: Checkpointer = None
) -> CompiledStateGraph[State, Context, State, State]:
    """Build the graph over one retriever and one model; interrupts need a checkpointer."""

    async def generate(state: State) -> State:
        documents = HumanMessage(format_documents(state["documents"]))
        task = [SystemMessage(RULE), documents, HumanMessage(state["question"])]
        return {"answer": (await model.ainvoke(task)).text}

    builder = StateGraph(State, context_schema=Context)
    builder.add_node("retrieve", crabpath_retrieve(retriever))
    builder.add_node("generate", generate)
    builder.add_node("feedback", crabpath_feedback(retriever, ask=True))
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "generate")
    builder.add_edge("generate", "feedback")
    builder.add_edge("feedback", END)
    return builder.compile(checkpointer=checkpointer)


async def graph() -> CompiledStateGraph[State, Context, State, State]:
    """The graph as a LangGraph server runs it."""
    return build(await served_retriever(), await served_model())
