"""CrabPath in LangChain: its standard tests, configuration, concurrency, traces."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from host_answers import QUESTION, block_of, ids, turn_of
from langchain_classic.retrievers import EnsembleRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField
from langchain_core.tracers.context import collect_runs
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import RetrieversIntegrationTests

from crabpath_retrievers import CrabPath, CrabPathRetriever

QUESTIONS = [
    QUESTION,
    "What is the film Doctor Strange about?",
    "Who lived in Woodson County, Kansas?",
]


class TestCrabPathRetriever(RetrieversIntegrationTests):
    """The standard tests that LangChain gives to every retriever integration."""

    memory: CrabPath

    @pytest.fixture(autouse=True)
    def _filled(self, own_retriever):
        self.memory = own_retriever.memory

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return CrabPathRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION


def test_an_ensemble_merges_by_the_id_in_the_metadata(retriever):
    both = EnsembleRetriever(retrievers=[retriever, retriever], weights=[0.5, 0.5], id_key="id")
    assert ids(both.invoke(QUESTION)) == ids(retriever.invoke(QUESTION))


async def test_a_hundred_at_once_block_nobody_and_get_their_own_answers(retriever):
    """As one by one; the loop goes on beside them."""
    alone = {q: ids(retriever.invoke(q)) for q in QUESTIONS}
    asked = [QUESTIONS[number % len(QUESTIONS)] for number in range(100)]
    with blockbuster_ctx():
        answers = await asyncio.gather(*[retriever.ainvoke(question) for question in asked])
    assert [ids(answer) for answer in answers] == [alone[question] for question in asked]
    assert len({turn_of(answer) for answer in answers}) == 100


class Starts(BaseCallbackHandler):
    """Notes what a handler sees when a retriever starts."""

    def __init__(self):
        self.seen = []

    def on_retriever_start(self, serialized, query, *, tags=None, metadata=None, **kwargs):
        self.seen.append((tags, metadata))


def test_a_trace_has_the_configuration_and_names_store_and_model(retriever, passages, embeddings):
    starts = Starts()
    config = {"tags": ["rag"], "metadata": {"user": "ada"}, "callbacks": [starts]}
    retriever.with_config(config).invoke(QUESTION)
    store = InMemoryVectorStore.from_documents(passages, embeddings)
    wrapped = CrabPathRetriever.from_vectorstore(store)
    wrapped.invoke(QUESTION, {"callbacks": [starts]})
    wrapped.memory.close()
    (tags, metadata), (_, other) = starts.seen
    wanted = {
        "user": "ada",
        "ls_retriever_name": "crabpath",
        "ls_vector_store_provider": "Chroma",
        "ls_embedding_model": "words",
    }
    assert (tags, wanted.items() <= metadata.items()) == (["rag"], True)
    assert other["ls_vector_store_provider"] == "InMemoryVectorStore"
    assert json.loads(dumps(retriever))["id"][-1] == "CrabPathRetriever"


def test_k_and_namespace_can_be_configured_per_call(retriever):
    chosen = retriever.configurable_fields(
        k=ConfigurableField(id="k"), namespace=ConfigurableField(id="user")
    )
    found = chosen.invoke(QUESTION, {"configurable": {"k": 2, "user": "ada"}})
    assert (len(found), block_of(found)["namespace"]) == (2, "ada")
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


def test_a_document_that_was_not_returned_may_be_named_as_relevant(own_retriever, question):
    missed = own_retriever.invoke(question, k=9)[-1]
    found = own_retriever.invoke(question)
    assert missed.id not in [document.id for document in found]
    said = {"relevant": [missed], "irrelevant": found[:1]}
    (receipt,) = own_retriever.record(found, "down", **said)
    assert (receipt.status, receipt.note) == ("applied", None)
    assert own_retriever.invoke(question)[0].id == missed.id


async def test_the_type_of_the_task_is_a_field_and_an_option(retriever):
    memory = retriever.memory
    refunds = CrabPathRetriever(memory=memory, task_type="refund")
    found = refunds.invoke(QUESTION), await refunds.ainvoke(QUESTION, task_type="cancel")
    types = [memory.explain(turn_of(documents)).turn.task_type for documents in found]
    assert types == ["refund", "cancel"]
