"""The type of task that users of each host give, in the record of the turn."""

from dataclasses import dataclass

import pytest
from host_answers import turn_of
from langchain.agents import create_agent
from langgraph.graph import StateGraph
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from langgraph_crabpath import CrabPathMiddleware, crabpath_retrieve, create_crabpath_tool
from llama_index.retrievers.crabpath import CrabPathReranker
from llama_index.retrievers.crabpath import CrabPathRetriever as LlamaIndexRetriever


class State(TypedDict, total=False):
    question: str
    documents: list
    turn_id: str


@dataclass
class Context:
    task_type: str | None


def graph(retriever, **options):
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("retrieve", crabpath_retrieve(retriever, **options))
    builder.set_entry_point("retrieve")
    return builder.compile()


@pytest.fixture
def memory(own_retriever):
    return own_retriever.memory


@pytest.fixture
def task_of(memory):
    """Type of the task of a turn, by its id or by what it returned."""
    return lambda found: (
        memory.explain(found if isinstance(found, str) else turn_of(found)).turn.task_type
    )


async def test_retrievers_have_it_as_field_and_for_a_call(memory, question, task_of):
    assert task_of(CrabPathRetriever(memory=memory).invoke(question)) is None
    refunds = CrabPathRetriever(memory=memory, task_type="refund")
    assert task_of(refunds.invoke(question)) == "refund"
    assert task_of(await refunds.ainvoke(question, task_type="cancel")) == "cancel"
    others = LlamaIndexRetriever(memory, task_type="refund")
    nodes = others.retrieve(question)
    assert task_of(nodes) == "refund"
    cancels = others.for_task("cancel").for_namespace("ann")
    assert task_of(await cancels.aretrieve(question)) == "cancel"
    for item in nodes:
        item.node.metadata.pop("crabpath")
    reranker = CrabPathReranker(memory=memory, task_type="order")
    assert task_of(reranker.postprocess_nodes(nodes, query_str=question)) == "order"


async def test_langgraph_takes_the_first_of_option_context_configurable_and_field(
    memory, question, task_of
):
    refunds = CrabPathRetriever(memory=memory, task_type="field")
    config, context = {"configurable": {"task_type": "configurable"}}, Context("context")

    async def task(graph, **given):
        return task_of((await graph.ainvoke({"question": question}, **given))["turn_id"])

    assert await task(graph(CrabPathRetriever(memory=memory))) is None
    assert await task(graph(refunds)) == "field"
    assert await task(graph(refunds), config=config) == "configurable"
    assert await task(graph(refunds), config=config, context=context) == "context"
    fixed = graph(refunds, task_type="option")
    assert await task(fixed, config=config, context=context) == "option"
    chosen = graph(refunds, task_type=lambda _, config: config["configurable"].get("kind"))
    assert await task(chosen, config={"configurable": {"kind": "cancel"}}) == "cancel"
    assert await task(chosen) == "field"


def test_agents_have_it(own_retriever, chat_server, model, question, task_of):
    """The model cannot choose it."""
    middleware = CrabPathMiddleware(own_retriever, task_type="refund")
    agent = create_agent(model, [], middleware=[middleware])
    result = agent.invoke({"messages": [("user", question)]})
    tool = create_crabpath_tool(own_retriever, task_type="cancel")
    assert list(tool.args) == ["query"]
    call = {"type": "tool_call", "name": tool.name, "id": "1", "args": {"query": question}}
    turns = [*result["crabpath_turns"], tool.invoke(call).artifact]
    assert [task_of(turn) for turn in turns] == ["refund", "cancel"]


@pytest.mark.parametrize("task", ["  ", "x" * 201, 7])
def test_one_that_cannot_be_kept_is_refused(own_retriever, memory, question, task):
    before = memory.info()
    with pytest.raises(InvalidInputError, match="task_type must be a text of 1 to 200"):
        own_retriever.invoke(question, task_type=task)
    assert memory.info() == before
