"""CrabPath as a LangChain Runnable: batches, configuration, retries, events, traces."""

import json
import uuid

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumps
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tracers.context import collect_runs
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    InvalidInputError,
    StoreUnavailableError,
)
from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.routing.policy import SoftmaxRouter

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
QUESTIONS = [
    QUESTION,
    "What government position was held by the woman who portrayed Corliss Archer?",
    "What science fantasy series has companion books about enslaved worlds?",
]


class Runs(BaseCallbackHandler):
    """Notes what a handler sees when a retriever starts."""

    def __init__(self):
        """Start with nothing."""
        self.starts = []

    def on_retriever_start(self, serialized, query, *, run_id, tags=None, metadata=None, **kwargs):
        """Note one start."""
        self.starts.append(
            {"id": run_id, "query": query, "tags": tags, "metadata": metadata, **kwargs}
        )


class ModelRouter(SoftmaxRouter):
    """The softmax policy, run as a Runnable as a router with a chat model would be."""

    def route(self, request):
        """Decide inside a Runnable that gets the request's callbacks."""
        model = RunnableLambda(super().route).with_config(run_name="router")
        return model.invoke(request, {"callbacks": request.callbacks})

    async def aroute(self, request):
        """As route."""
        model = RunnableLambda(super().route).with_config(run_name="router")
        return await model.ainvoke(request, {"callbacks": request.callbacks})


class Failing(SoftmaxRouter):
    """A router whose model fails the first time."""

    failures = 1

    def route(self, request):
        """Fail once, then decide."""
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        return super().route(request)


@pytest.fixture(scope="module")
def small(passages):
    """The first question's ten passages."""
    return passages[:10]


def routed(passages, embeddings, router):
    """A retriever whose walk asks a router."""
    memory = CrabPath.open(embeddings=embeddings, router=router)
    memory.add_documents(passages)
    return CrabPathRetriever(memory=memory, k=2)


def ids(documents):
    """Ids in order."""
    return [document.id for document in documents]


def test_batch(retriever):
    """A batch gives each question its own answer, in order."""
    assert [ids(a) for a in retriever.batch(QUESTIONS)] == [
        ids(retriever.invoke(q)) for q in QUESTIONS
    ]


def test_batch_returns_exceptions(retriever):
    """One unusable question does not spoil the others of a batch."""
    first, second = retriever.batch([QUESTION, " "], return_exceptions=True)
    assert ids(first) == ids(retriever.invoke(QUESTION))
    assert isinstance(second, InvalidInputError)


def test_with_config(retriever):
    """Tags, metadata and callbacks of with_config reach the handlers."""
    seen = Runs()
    config = {"tags": ["rag"], "metadata": {"user": "ada"}, "callbacks": [seen]}
    retriever.with_config(config).invoke(QUESTION)
    (start,) = seen.starts
    assert start["tags"] == ["rag"]
    assert start["metadata"]["user"] == "ada"


def test_langsmith_parameters(retriever):
    """A trace tells the retriever, the vector store and the embedding model."""
    seen = Runs()
    retriever.invoke(QUESTION, {"callbacks": [seen]})
    shown = seen.starts[0]["metadata"]
    assert shown["ls_retriever_name"] == "crabpath"
    assert shown["ls_vector_store_provider"] == "Chroma"
    assert shown["ls_embedding_model"] == "sentence-transformers/all-MiniLM-L6-v2"


def test_langsmith_names_a_wrapped_store(small, embeddings):
    """Over a wrapped store a trace tells the store's own name."""
    store = InMemoryVectorStore.from_documents(small, embeddings)
    wrapped = CrabPathRetriever.from_vectorstore(store)
    assert wrapped._get_ls_params()["ls_vector_store_provider"] == "InMemoryVectorStore"
    wrapped.memory.close()


def test_with_retry(small, embeddings):
    """with_retry asks again when the router's model failed, and answers."""
    flaky = routed(small, embeddings, Failing(PolicySettings()))
    again = flaky.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    assert len(again.invoke(QUESTION)) == 2
    assert flaky.memory.info()["turns"] == 1
    flaky.memory.close()


def test_with_fallbacks(retriever, small, embeddings):
    """with_fallbacks answers from the second retriever when the first is closed."""
    closed = CrabPathRetriever.from_documents(small, embeddings)
    closed.memory.close()
    with pytest.raises(StoreUnavailableError):
        closed.invoke(QUESTION)
    safe = closed.with_fallbacks([retriever])
    assert ids(safe.invoke(QUESTION)) == ids(retriever.invoke(QUESTION))


def test_configurable_fields(retriever):
    """K and namespace can be chosen per call through the configuration."""
    chosen = retriever.configurable_fields(
        k=ConfigurableField(id="k"), namespace=ConfigurableField(id="user")
    )
    found = chosen.invoke(QUESTION, {"configurable": {"k": 2, "user": "ada"}})
    assert len(found) == 2
    assert found[0].metadata["crabpath"]["namespace"] == "ada"
    assert len(chosen.invoke(QUESTION)) == 4


async def test_astream_events(retriever):
    """astream_events tells the start and the end of a retrieval with its documents."""
    events = [event async for event in retriever.astream_events(QUESTION, version="v2")]
    assert [event["event"] for event in events] == ["on_retriever_start", "on_retriever_end"]
    assert ids(events[1]["data"]["output"]) == ids(retriever.invoke(QUESTION))


def test_run_id_finds_the_turn(retriever):
    """The run id given to invoke finds the turn, as UUID and as text."""
    run = uuid.uuid4()
    found = retriever.invoke(QUESTION, run_id=run)
    turn = retriever.memory.explain(run).turn
    assert turn.id == found[0].metadata["crabpath"]["turn_id"]
    assert turn.run_id == str(run)
    assert retriever.memory.explain(str(run)).turn == turn


def test_traced_run_finds_the_turn(retriever):
    """A run that a tracer collected finds its turn without being told an id."""
    with collect_runs() as runs:
        retriever.invoke(QUESTION)
    assert retriever.memory.explain(runs.traced_runs[0].id).turn.query == QUESTION


async def test_router_runs_appear_under_the_retriever(small, embeddings):
    """A Runnable that the router runs is a child of the retriever's run, sync and async."""
    retriever = routed(small, embeddings, ModelRouter(PolicySettings()))
    with collect_runs() as runs:
        retriever.invoke(QUESTION)
        await retriever.ainvoke(QUESTION)
    for run in runs.traced_runs:
        assert run.run_type == "retriever"
        assert {child.name for child in run.child_runs} == {"router"}
    assert len(runs.traced_runs) == 2
    retriever.memory.close()


def test_survives_a_langgraph_checkpoint(retriever):
    """Documents come back equal from LangGraph's msgpack serializer."""
    found = retriever.invoke(QUESTION)
    serializer = JsonPlusSerializer()
    assert serializer.loads_typed(serializer.dumps_typed(found)) == found


def test_metadata_is_json(retriever):
    """Every document's metadata comes back equal from JSON."""
    for document in retriever.invoke(QUESTION, k=50):
        assert json.loads(json.dumps(document.metadata, allow_nan=False)) == document.metadata


def test_is_shown_in_traces(retriever):
    """The retriever itself can be written into a trace as JSON."""
    assert json.loads(dumps(retriever))["id"][-1] == "CrabPathRetriever"
