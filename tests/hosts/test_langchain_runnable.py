"""CrabPath as a LangChain Runnable: batches, configuration, retries, events, traces."""

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

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.routing.policy import SoftmaxRouter

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


class Failing(SoftmaxRouter):
    """A router whose model fails the first time."""

    failures = 1

    def route(self, request):
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        return super().route(request)


def test_a_batch_answers_each_question_in_order(retriever):
    found = retriever.batch([*QUESTIONS, " "], return_exceptions=True)
    assert [ids(a) for a in found[:-1]] == [ids(retriever.invoke(q)) for q in QUESTIONS]
    assert isinstance(found[-1], InvalidInputError)


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


def test_a_trace_has_the_configuration_and_names_store_and_model(retriever):
    seen = Runs()
    config = {"tags": ["rag"], "metadata": {"user": "ada"}, "callbacks": [seen]}
    retriever.with_config(config).invoke(QUESTION)
    (start,) = seen.starts
    assert start["tags"] == ["rag"]
    wanted = {
        "user": "ada",
        "ls_retriever_name": "crabpath",
        "ls_vector_store_provider": "Chroma",
        "ls_embedding_model": "words",
    }
    assert wanted.items() <= start["metadata"].items()
    assert json.loads(dumps(retriever))["id"][-1] == "CrabPathRetriever"


def test_a_trace_names_a_wrapped_store(passages, embeddings):
    seen = Runs()
    wrapped = CrabPathRetriever.from_vectorstore(
        InMemoryVectorStore.from_documents(passages, embeddings)
    )
    wrapped.invoke(QUESTION, {"callbacks": [seen]})
    assert seen.starts[0]["metadata"]["ls_vector_store_provider"] == "InMemoryVectorStore"
    wrapped.memory.close()


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


def test_with_retry_asks_again_when_the_model_of_the_router_failed(place, embeddings):
    router = Failing(PolicySettings())
    flaky = CrabPathRetriever.from_existing(place, embeddings, k=2, router=router)
    again = flaky.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    assert len(again.invoke(QUESTION)) == 2
    assert flaky.memory.info()["turns"] == 1
    flaky.memory.close()
