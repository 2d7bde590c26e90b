"""CrabPath inside the constructions of LlamaIndex that take a retriever."""

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine, TransformQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from llama_index.retrievers.crabpath import CrabPathRetriever, turns_of

ANSWER = "Yes, Scott Derrickson and Ed Wood were both American."


def ids(nodes):
    """Ids in order."""
    return [item.node.node_id for item in nodes]


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
async def test_fusion(shared, index, question, mode):
    """Joined with the index's own retriever, each node once; sync and async."""
    own = CrabPathRetriever.from_index(index)
    fused = QueryFusionRetriever(
        [own, index.as_retriever(similarity_top_k=4)],
        llm=MockLLM(),
        num_queries=1,
        mode=mode,
        similarity_top_k=8,
        use_async=False,
    )
    wanted = {*ids(own.retrieve(question)), *ids(fused._retrievers[1].retrieve(question))}
    for nodes in (fused.retrieve(question), await fused.aretrieve(question)):
        assert len(nodes) == len(set(ids(nodes)))
        assert set(ids(nodes)) == wanted
    own.memory.close()


def test_fusion_of_several_questions(shared, llm, chat_server, question):
    """Each question is a turn; a node that several of them find comes once."""
    chat_server.says = "Was Scott Derrickson American?\nWas Ed Wood American?"
    fused = QueryFusionRetriever([shared], llm=llm, num_queries=3, similarity_top_k=10)
    before = shared.memory.info()["turns"]
    nodes = fused.retrieve(question)
    assert shared.memory.info()["turns"] == before + 3
    assert len(nodes) == len(set(ids(nodes)))
    assert set(ids(shared.retrieve(question))) <= set(ids(nodes))


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
@pytest.mark.parametrize("kind", ["engine", "retriever"])
async def test_function_agent(shared, engine, llm, chat_server, question, kind):
    """The agent asks CrabPath as a tool, and its output names the turn."""
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
    """A chat engine's response names its turn, too."""
    memory = ChatMemoryBuffer.from_defaults(llm=MockLLM())
    chat = ContextChatEngine.from_defaults(shared, llm=MockLLM(), memory=memory)
    response = chat.chat(question)
    assert ids(response.source_nodes) == ids(shared.retrieve(question))
    assert len(turns_of(response)) == 1


def test_hypothetical_documents(shared, question):
    """HyDE asks with the embedding of an answer that it made up."""
    engine = RetrieverQueryEngine.from_args(shared, llm=MockLLM())
    hyde = HyDEQueryTransform(llm=MockLLM(max_tokens=3), include_original=True)
    found = TransformQueryEngine(engine, hyde).query(question).source_nodes
    (turn,) = turns_of(found)
    assert shared.memory.explain(turn).turn.query == question


async def test_retriever_evaluator(shared, question):
    """LlamaIndex's own metrics, over ids of documents."""
    metrics = ["hit_rate", "mrr", "precision", "recall", "ap", "ndcg"]
    evaluator = RetrieverEvaluator.from_metric_names(metrics, retriever=shared)
    gold = {n.metadata["title"]: n.node_id for n in shared.retrieve(question)}
    wanted = [gold["Scott Derrickson"], gold["Ed Wood"]]
    for result in (
        evaluator.evaluate(question, wanted),
        await evaluator.aevaluate(question, wanted),
    ):
        scores = result.metric_vals_dict
        assert scores["hit_rate"] == scores["recall"] == 1.0
        assert 0 < scores["precision"] < 1
        assert 0 < scores["mrr"] <= 1
