"""CrabPath inside the constructions of LlamaIndex that take a retriever."""

import pytest
from host_answers import ids
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llama_index.retrievers.crabpath import CrabPathRetriever, turns_of

ANSWER = "Yes, Scott Derrickson and Ed Wood were both American."


@pytest.fixture
def engine(shared, llm, chat_server):
    """A query engine with a real client of a local model."""
    chat_server.says = ANSWER
    return RetrieverQueryEngine.from_args(shared, llm=llm)


def test_query_engine(engine, shared, chat_server, question):
    """The model reads the texts and not the turns; the response carries both."""
    response = engine.query(question)
    assert str(response) == ANSWER
    assert ids(response.source_nodes) == ids(shared.retrieve(question))
    sent = str(chat_server.requests[-1]["messages"])
    assert all(item.text[:60] in sent for item in response.source_nodes)
    assert "turn_id" not in sent


@pytest.mark.parametrize("mode", ["reciprocal_rerank", "relative_score", "simple"])
async def test_fusion_returns_each_node_once(index, question, mode, closing):
    own, theirs = closing(CrabPathRetriever.from_index(index)), index.as_retriever()
    fused = QueryFusionRetriever(
        [own, theirs], llm=MockLLM(), num_queries=1, mode=mode, similarity_top_k=8, use_async=False
    )
    wanted = {*ids(own.retrieve(question)), *ids(theirs.retrieve(question))}
    for nodes in (fused.retrieve(question), await fused.aretrieve(question)):
        assert sorted(ids(nodes)) == sorted(wanted)


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
@pytest.mark.parametrize("kind", ["engine", "retriever"])
async def test_function_agent(shared, engine, llm, chat_server, question, kind):
    tools = {
        "engine": QueryEngineTool.from_defaults(engine, name="passages", description="Passages."),
        "retriever": RetrieverTool.from_defaults(shared, name="passages", description="Passages."),
    }

    def says(body):
        asked = [message for message in body["messages"] if message["role"] == "tool"]
        return ANSWER if asked or not body.get("tools") else {"input": question}

    chat_server.says = says
    agent = FunctionAgent(tools=[tools[kind]], llm=llm, streaming=False)
    output = await agent.run(question)
    assert output.response.content == ANSWER
    (turn,) = turns_of(output)
    assert shared.memory.explain(turn).turn.query.strip().endswith(question)


def test_chat_engine(shared, question):
    memory = ChatMemoryBuffer.from_defaults(llm=MockLLM())
    chat = ContextChatEngine.from_defaults(shared, llm=MockLLM(), memory=memory)
    response = chat.chat(question)
    assert ids(response.source_nodes) == ids(shared.retrieve(question))
    assert len(turns_of(response)) == 1
