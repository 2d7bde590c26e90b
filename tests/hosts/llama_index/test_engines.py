"""CrabPath inside the constructions of LlamaIndex that take a retriever."""

import pytest
from host_answers import ids
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llama_index.retrievers.crabpath import turns_of

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


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
@pytest.mark.parametrize("kind", [QueryEngineTool, RetrieverTool])
async def test_function_agent(shared, engine, llm, chat_server, question, kind):
    """The turn behind an answer is found in what the tools gave."""
    source = engine if kind is QueryEngineTool else shared
    tool = kind.from_defaults(source, name="passages", description="Passages.")

    def says(body):
        asked = [message for message in body["messages"] if message["role"] == "tool"]
        return ANSWER if asked or not body.get("tools") else {"input": question}

    chat_server.says = says
    agent = FunctionAgent(tools=[tool], llm=llm, streaming=False)
    output = await agent.run(question)
    assert output.response.content == ANSWER
    (turn,) = turns_of(output)
    assert shared.memory.explain(turn).turn.query.strip().endswith(question)
