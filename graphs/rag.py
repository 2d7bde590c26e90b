"""Retrieve, generate, grade, record: a RAG graph whose own grade teaches its retrieval."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve, format_documents
from langgraph_crabpath.serving import served_model, served_retriever

ANSWER = "Answer the question from the documents, shortly. Say so when they do not answer it."
GRADE = "Grade the answer: does it answer the question, and does it follow from the documents?"


class Context(TypedDict, total=False):
    """The user of a run; every user has a separate namespace."""

    user_id: str


class State(TypedDict, total=False):
    """State of the graph, from question to receipt."""

    question: str
    documents: list[Document]
    turn_id: str
    answer: str
    outcome: float | None
    used: list[str] | None
    feedback: dict[str, Any]


class Grade(BaseModel):
    """Grade of an answer."""

    outcome: float = Field(description="-1: wrong or no answer; 1: right and complete", ge=-1, le=1)
    used: list[str] = Field(description="ids of the documents that the answer rests on")


def build(
    retriever: CrabPathRetriever, model: BaseChatModel, checkpointer: Checkpointer = None
) -> CompiledStateGraph[State, Context, State, State]:
    """Build the graph over one retriever and one model."""
    grader = model.with_structured_output(Grade)

    async def generate(state: State) -> State:
        said = await model.ainvoke(_messages(ANSWER, state, state["question"]))
        return {"answer": said.text}

    async def grade(state: State) -> State:
        task = f"Question: {state['question']}\nAnswer: {state['answer']}"
        try:
            graded = await grader.ainvoke(_messages(GRADE, state, task))
        except ValueError:  # prose in place of a grade, or a grade out of range
            graded = None
        if not isinstance(graded, Grade):
            return {"outcome": None, "used": None}
        return {"outcome": graded.outcome, "used": graded.used}

    builder = StateGraph(State, context_schema=Context)
    builder.add_node("retrieve", crabpath_retrieve(retriever))
    builder.add_node("generate", generate)
    builder.add_node("grade", grade)
    builder.add_node("record", crabpath_feedback(retriever, source="self"))
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "generate")
    builder.add_edge("generate", "grade")
    builder.add_edge("grade", "record")
    builder.add_edge("record", END)
    return builder.compile(checkpointer=checkpointer)


def _messages(rule: str, state: State, task: str) -> list[SystemMessage | HumanMessage]:
    documents = format_documents(state["documents"])
    return [SystemMessage(rule), HumanMessage(documents), HumanMessage(task)]


async def graph() -> CompiledStateGraph[State, Context, State, State]:
    """The graph as a LangGraph server runs it."""
    return build(await served_retriever(), await served_model())
