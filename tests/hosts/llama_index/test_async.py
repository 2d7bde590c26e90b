"""Nothing blocks the event loop, however many ask."""

import asyncio

import blockbuster
import pytest
from llama_index.core import Document
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle

from crabpath_retrievers import OutcomePolicy, Rule
from llama_index.retrievers.crabpath import (
    CrabPathEventHandler,
    CrabPathReranker,
    CrabPathRetriever,
)


@pytest.fixture
def engine(retriever):
    """A query engine: LlamaIndex reads files when it makes one."""
    return RetrieverQueryEngine.from_args(retriever, llm=MockLLM())


@pytest.fixture
def watched(retriever):
    """Raises where a coroutine blocks; SQLite, files, locks and sleep among them."""
    with blockbuster.blockbuster_ctx():
        yield retriever


async def test_the_watch_sees_what_blocks(watched, question):
    """The sync method would be refused on the loop."""
    with pytest.raises(blockbuster.BlockingError):
        watched.retrieve(question)


async def test_retrieval_does_not_block(watched, question):
    """Neither by text nor by other texts or an embedding; nor does feedback."""
    nodes = await watched.aretrieve(question)
    await watched.aretrieve(QueryBundle(question, custom_embedding_strs=["Ed Wood"]))
    await watched.aretrieve(QueryBundle(question, embedding=[1.0] * 384))
    (receipt,) = await watched.arecord(nodes, 1.0)
    assert receipt.status == "applied"


async def test_reranking_does_not_block(watched, question):
    """As it does not when nodes are those of another retriever."""
    nodes = await watched.aretrieve(question)
    for item in nodes:
        del item.node.metadata["crabpath"]
    ranked = await CrabPathReranker(memory=watched.memory).apostprocess_nodes(
        nodes, query_str=question
    )
    assert [n.node_id for n in ranked] == [n.node_id for n in nodes]


async def test_events_do_not_block(engine, watched, question):
    """What is learned at the end of a query is learned by another thread."""
    with CrabPathEventHandler(
        watched.memory, OutcomePolicy(silent_success=Rule(0.2, "harvested"))
    ) as handler:
        response = await engine.aquery(question)
        (receipt,) = await handler.arecord(response, 1.0)
    assert receipt.status == "applied"


async def test_many_at_once(watched, question):
    """A hundred on one loop, each with its own answer and turn."""
    asked = [watched.aretrieve(f"{question} {number}") for number in range(100)]
    answers = await asyncio.gather(*asked)
    turns = {nodes[0].metadata["crabpath"]["turn_id"] for nodes in answers}
    assert len(turns) == 100
    assert all(len(nodes) == 4 for nodes in answers)


async def test_namespaces_at_once(watched, question):
    """Do not mix."""
    asked = [watched.for_namespace(f"n{number % 5}").aretrieve(question) for number in range(20)]
    for number, nodes in enumerate(await asyncio.gather(*asked)):
        assert nodes[0].metadata["crabpath"]["namespace"] == f"n{number % 5}"


async def test_an_async_model_is_awaited(embed_model, question):
    """A query is embedded by the model's own coroutine, on the loop."""
    made = CrabPathRetriever.from_documents([Document(text="Apples are red.")], embed_model)
    await made.aretrieve(question)
    assert embed_model.asked[-1] == f"async {question}"
    made.memory.close()
