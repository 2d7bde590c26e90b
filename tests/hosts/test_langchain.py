"""CrabPath in LangChain: its standard tests, constructions, configuration, concurrency, traces."""

import asyncio
import json
import uuid
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from host_answers import QUESTION, block_of, ids, texts, turn_of
from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import EnsembleRetriever, MultiQueryRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import create_retriever_tool
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


def make_chain(retriever):
    prompt = ChatPromptTemplate.from_template("{context}\n\n{input}")
    combine = create_stuff_documents_chain(FakeListChatModel(responses=["yes"]), prompt)
    return create_retrieval_chain(retriever, combine) | (lambda result: result["context"])


def make_history_aware(retriever):
    """Asks the question that the model made of the history."""
    prompt = ChatPromptTemplate.from_messages(
        [("placeholder", "{chat_history}"), ("user", "{input}")]
    )
    model = FakeListChatModel(responses=[QUESTION])
    return create_history_aware_retriever(model, retriever, prompt)


def make_ensemble(retriever):
    """The id stands in the metadata: two equal rankings merge into that one."""
    both = EnsembleRetriever(retrievers=[retriever, retriever], weights=[0.5, 0.5], id_key="id")
    return RunnableLambda(lambda given: given["input"]) | both


@pytest.mark.parametrize("make", [make_chain, make_history_aware, make_ensemble])
async def test_a_construction_returns_what_the_retriever_returns(retriever, make):
    built = make(retriever)
    given = {"input": QUESTION, "chat_history": [HumanMessage("Who is he?"), AIMessage("Ed.")]}
    for found in (built.invoke(given), await built.ainvoke(given)):
        assert ids(found) == ids(retriever.invoke(QUESTION))


def test_is_asked_several_questions(retriever):
    model = FakeListChatModel(responses=["\n".join(QUESTIONS[1:])])
    found = MultiQueryRetriever.from_llm(retriever=retriever, llm=model).invoke("anything")
    wanted = retriever.invoke(QUESTIONS[1]) + retriever.invoke(QUESTIONS[2])
    assert sorted(texts(found)) == sorted(set(texts(wanted)))


async def test_is_a_tool(retriever):
    """The model gets the texts; the artifact of the message carries the documents themselves."""
    tool = create_retriever_tool(
        retriever, "search", "Searches passages.", response_format="content_and_artifact"
    )
    call = {"type": "tool_call", "name": "search", "id": "1", "args": {"query": QUESTION}}
    for message in (tool.invoke(call), await tool.ainvoke(call)):
        assert message.content == "\n\n".join(texts(retriever.invoke(QUESTION)))
        assert ids(message.artifact) == ids(retriever.invoke(QUESTION))
        assert turn_of(message.artifact)


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
