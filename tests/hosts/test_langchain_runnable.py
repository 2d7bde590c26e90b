"""CrabPath as a LangChain Runnable: configuration, concurrency, traces."""

import asyncio
import json
import uuid

from blockbuster import blockbuster_ctx
from host_answers import QUESTION, block_of, ids, turn_of
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps
from langchain_core.runnables import ConfigurableField
from langchain_core.tracers.context import collect_runs
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPathRetriever

QUESTIONS = [
    QUESTION,
    "What is the film Doctor Strange about?",
    "Who lived in Woodson County, Kansas?",
]


class Runs(BaseCallbackHandler):
    """Notes what a handler sees when a retriever starts."""

    def __init__(self):
        self.starts = []

    def on_retriever_start(self, serialized, query, *, tags=None, metadata=None, **kwargs):
        self.starts.append({"tags": tags, "metadata": metadata})


async def test_a_hundred_at_once_block_nobody_and_get_their_own_answers(retriever):
    """As one by one; the loop goes on beside them."""
    alone = {q: ids(retriever.invoke(q)) for q in QUESTIONS}
    asked = [QUESTIONS[number % len(QUESTIONS)] for number in range(100)]
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    beside = asyncio.create_task(tick())
    with blockbuster_ctx():
        answers = await asyncio.gather(*[retriever.ainvoke(question) for question in asked])
    beside.cancel()
    assert [ids(answer) for answer in answers] == [alone[question] for question in asked]
    assert ticks > 5
    assert len({turn_of(answer) for answer in answers}) == 100


def test_a_trace_has_the_configuration_and_names_store_and_model(retriever, passages, embeddings):
    seen = Runs()
    config = {"tags": ["rag"], "metadata": {"user": "ada"}, "callbacks": [seen]}
    retriever.with_config(config).invoke(QUESTION)
    store = InMemoryVectorStore.from_documents(passages, embeddings)
    wrapped = CrabPathRetriever.from_vectorstore(store)
    wrapped.invoke(QUESTION, {"callbacks": [seen]})
    wrapped.memory.close()
    start, other = seen.starts
    assert start["tags"] == ["rag"]
    wanted = {
        "user": "ada",
        "ls_retriever_name": "crabpath",
        "ls_vector_store_provider": "Chroma",
        "ls_embedding_model": "words",
    }
    assert wanted.items() <= start["metadata"].items()
    assert other["metadata"]["ls_vector_store_provider"] == "InMemoryVectorStore"
    assert json.loads(dumps(retriever))["id"][-1] == "CrabPathRetriever"


def test_k_and_namespace_can_be_configured_per_call(retriever):
    chosen = retriever.configurable_fields(
        k=ConfigurableField(id="k"), namespace=ConfigurableField(id="user")
    )
    found = chosen.invoke(QUESTION, {"configurable": {"k": 2, "user": "ada"}})
    assert len(found) == 2
    assert block_of(found)["namespace"] == "ada"
    assert len(chosen.invoke(QUESTION)) == 4


def test_a_run_id_finds_the_turn(retriever):
    """As UUID and as text, given to invoke or made up by a tracer."""
    run = uuid.uuid4()
    with collect_runs() as runs:
        found = retriever.invoke(QUESTION, run_id=run)
        retriever.invoke(QUESTIONS[1])
    turn = retriever.memory.explain(run).turn
    assert (turn.id, turn.run_id) == (turn_of(found), str(run))
    assert retriever.memory.explain(str(run)).turn == turn
    assert retriever.memory.explain(runs.traced_runs[1].id).turn.query == QUESTIONS[1]
