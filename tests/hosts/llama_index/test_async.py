"""Nothing blocks the event loop, however many ask."""

import pytest
from blockbuster import blockbuster_ctx
from host_answers import ids
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle

from crabpath_retrievers import OutcomePolicy, Rule
from llama_index.retrievers.crabpath import CrabPathEventHandler, CrabPathReranker


@pytest.fixture
def engine(retriever):
    """A query engine: LlamaIndex reads files when it makes one."""
    return RetrieverQueryEngine.from_args(retriever, llm=MockLLM())


@pytest.fixture
def watched(retriever):
    """Raises where a coroutine blocks; SQLite, files, locks and sleep among them."""
    with blockbuster_ctx():
        yield retriever


async def test_retrieval_reranking_and_feedback_do_not_block(watched, question):
    """By text, by other texts, by an embedding."""
    nodes = await watched.aretrieve(question)
    await watched.aretrieve(QueryBundle(question, custom_embedding_strs=["Ed Wood"]))
    await watched.aretrieve(QueryBundle(question, embedding=[1.0] * 384))
    (receipt,) = await watched.arecord(nodes, 1.0)
    assert receipt.status == "applied"
    for item in nodes:
        del item.node.metadata["crabpath"]
    reranker = CrabPathReranker(memory=watched.memory)
    ranked = await reranker.apostprocess_nodes(nodes, query_str=question)
    assert set(ids(ranked)) == set(ids(nodes))


async def test_events_do_not_block(engine, watched, question):
    """What is learned at the end of a query is learned by another thread."""
    silent = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
    with CrabPathEventHandler(watched.memory, silent) as handler:
        response = await engine.aquery(question)
        (receipt,) = await handler.arecord(response, 1.0)
    assert receipt.status == "applied"
