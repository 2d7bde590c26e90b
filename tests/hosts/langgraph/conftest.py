"""A memory that a test may change, states of every kind, and both ways to call a Runnable."""

from dataclasses import field, make_dataclass
from typing import Annotated, Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import AnyMessage
from langgraph.graph import add_messages
from pydantic import create_model
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever

FIELDS: dict[str, Any] = {
    "messages": Annotated[list[AnyMessage], add_messages],
    **dict.fromkeys(("documents", "used", "relevant"), list),
    **dict.fromkeys(("question", "turn_id", "answer", "correction", "outcome", "feedback"), Any),
}
DictState = TypedDict("DictState", FIELDS, total=False)  # type: ignore[misc]
DataState = make_dataclass(
    "DataState", [(name, kind, field(default=None)) for name, kind in FIELDS.items()]
)
ModelState = create_model("ModelState", **{name: (kind, None) for name, kind in FIELDS.items()})


@pytest.fixture
def dict_state() -> type:
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
