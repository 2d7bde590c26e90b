"""A memory that a test may change, states of every kind, and both ways to call a Runnable."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.graph import add_messages
from pydantic import BaseModel
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever


class DictState(TypedDict, total=False):
    question: str
    messages: Annotated[list[AnyMessage], add_messages]
    documents: list[Document]
    turn_id: str
    answer: str
    outcome: float | str | bool
    used: list[str]
    correction: str
    feedback: dict


@dataclass
class DataState:
    question: str | None = None
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    turn_id: str | None = None
    outcome: float | str | bool | None = None
    used: list[str] | None = None
    correction: str | None = None
    feedback: dict | None = None


class ModelState(BaseModel):
    question: str | None = None
    messages: Annotated[list[AnyMessage], add_messages] = []
    documents: list[Document] = []
    turn_id: str | None = None
    outcome: float | str | bool | None = None
    used: list[str] | None = None
    correction: str | None = None
    feedback: dict | None = None


@pytest.fixture
def dict_state() -> type[DictState]:
    return DictState


@pytest.fixture(params=[DictState, DataState, ModelState])
def state(request: pytest.FixtureRequest) -> type:
    kind: type = request.param
    return kind


@pytest.fixture
def retriever(own_retriever: CrabPathRetriever) -> CrabPathRetriever:
    return own_retriever


@pytest.fixture(params=["async", pytest.param("sync", marks=pytest.mark.slow)])
def called(request: pytest.FixtureRequest):
    """Calls a Runnable, once with invoke and once with ainvoke, which must not block the loop."""

    async def call(runnable, *args, **options):
        if request.param == "sync":
            return runnable.invoke(*args, **options)
        with blockbuster_ctx():
            return await runnable.ainvoke(*args, **options)

    return call
