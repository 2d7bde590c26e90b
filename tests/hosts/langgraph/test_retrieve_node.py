"""The node that retrieves: every kind of state, sync and async, and what it refuses."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph, add_messages
from pydantic import BaseModel
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from langgraph_crabpath import crabpath_retrieve


class DictState(TypedDict, total=False):
    """State as a TypedDict."""

    question: str
    messages: Annotated[list[AnyMessage], add_messages]
    documents: list[Document]
    turn_id: str


@dataclass
class DataState:
    """State as a dataclass."""

    question: str | None = None
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    turn_id: str | None = None


class ModelState(BaseModel):
    """State as a pydantic model."""

    question: str | None = None
    messages: Annotated[list[AnyMessage], add_messages] = []
    documents: list[Document] = []
    turn_id: str | None = None


def graph(state, node, **options):
    """A graph of one node."""
    builder = StateGraph(state)
    builder.add_node("retrieve", node)
    builder.set_entry_point("retrieve")
    return builder.compile(**options)


def ids(documents):
    """The ids of documents, in order."""
    return [document.id for document in documents]


@pytest.mark.parametrize("state", [DictState, DataState, ModelState])
async def test_finds_what_the_retriever_finds(retriever, question, called, state):
    """The documents are the retriever's, and the turn id is theirs, in every kind of state."""
    result = await called(graph(state, crabpath_retrieve(retriever)), {"question": question})
    assert ids(result["documents"]) == ids(retriever.invoke(question))
    turns = {document.metadata["crabpath"]["turn_id"] for document in result["documents"]}
    assert turns == {result["turn_id"]}


@pytest.mark.parametrize("state", [DictState, DataState, ModelState])
async def test_asks_the_last_human_message(retriever, question, called, state):
    """Without a question in the state, the last human message is asked, not the last message."""
    messages = [HumanMessage("Hello"), HumanMessage(question), AIMessage("Let me see.")]
    result = await called(graph(state, crabpath_retrieve(retriever)), {"messages": messages})
    assert ids(result["documents"]) == ids(retriever.invoke(question))


def test_asks_messages_that_are_dicts(retriever, question):
    """Messages as OpenAI writes them work too, with text in parts."""
    said = {"role": "user", "content": [{"type": "text", "text": question}]}
    result = crabpath_retrieve(retriever).invoke({"messages": [said]})
    assert ids(result["documents"]) == ids(retriever.invoke(question))


def test_uses_the_keys_that_are_named(retriever, question):
    """Every key of the state can have another name."""
    node = crabpath_retrieve(
        retriever, query_key="q", documents_key="found", turn_key="t", options={"k": 1}
    )
    result = node.invoke({"q": question, "question": "something else"})
    assert set(result) == {"found", "t"}
    assert ids(result["found"]) == ids(retriever.invoke(question, k=1))


def test_names_itself(retriever):
    """``add_node`` needs no name."""
    builder = StateGraph(DictState)
    builder.add_node(crabpath_retrieve(retriever))
    assert list(builder.nodes) == ["crabpath_retrieve"]


async def test_survives_a_checkpoint(retriever, question, called):
    """Documents come back from a msgpack checkpoint as they were."""
    built = graph(DictState, crabpath_retrieve(retriever), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    result = await called(built, {"question": question}, config)
    assert built.get_state(config).values == result


def test_streams_every_hop(retriever, question):
    """The custom stream tells of the hops in order, then of the result that the state gets."""
    built = graph(DictState, crabpath_retrieve(retriever))
    events = list(built.stream({"question": question}, stream_mode=["custom", "updates"]))
    custom = [event for mode, event in events if mode == "custom"]
    (update,) = [event["retrieve"] for mode, event in events if mode == "updates"]
    hops = []
    retriever.invoke(question, on_hop=hops.append)
    assert [(event["hop"], event["frontier"]) for event in custom[:-1]] == [
        (hop.number, list(hop.frontier)) for hop in hops
    ]
    assert any(event["followed"] for event in custom[:-1])
    assert custom[-1] == {
        "type": "crabpath_retrieved",
        "turn_id": update["turn_id"],
        "namespace": "default",
        "documents": [{"id": d.id, "score": d.metadata["score"]} for d in update["documents"]],
    }


async def test_streams_plain_data_asynchronously(retriever, question):
    """The async stream is the same, and JSON carries it unchanged."""
    import json

    built = graph(DictState, crabpath_retrieve(retriever))
    events = [event async for event in built.astream({"question": question}, stream_mode="custom")]
    assert [event["type"] for event in events[:-1]] == ["crabpath_hop"] * (len(events) - 1)
    assert events[-1]["type"] == "crabpath_retrieved"
    assert json.loads(json.dumps(events)) == events


def test_an_empty_memory_still_has_a_turn(embeddings, question):
    """Nothing is found, and a correction can still be given for the turn."""
    empty = CrabPathRetriever.from_documents([], embeddings)
    result = crabpath_retrieve(empty).invoke({"question": question})
    assert result["documents"] == []
    assert empty.record(result["turn_id"], -1, correction="Both were American.").status == "applied"
    assert [d.page_content for d in empty.invoke(question)] == ["Both were American."]
    empty.memory.close()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({}, "neither 'question' nor a human message in 'messages'"),
        ({"messages": [AIMessage("Hello")]}, "neither 'question' nor a human message"),
        ({"question": " "}, "the query is empty"),
        ({"messages": [HumanMessage("")]}, "the query is empty"),
        ({"question": 7}, "the query must be a text, not int"),
    ],
)
async def test_refuses_what_is_no_question(retriever, called, state, sentence):
    """One sentence says what the state lacks."""
    with pytest.raises(InvalidInputError, match=sentence):
        await called(crabpath_retrieve(retriever), state)


def test_refuses_what_is_no_retriever(retriever):
    """Any other object is refused when the graph is built."""
    with pytest.raises(InvalidInputError, match="pass a CrabPathRetriever, not a CrabPath"):
        crabpath_retrieve(retriever.memory)


def test_refuses_unknown_keys(retriever):
    """A misspelt key is named, with those that there are."""
    with pytest.raises(InvalidInputError, match=r"unknown options \['querry_key'\].*query_key"):
        crabpath_retrieve(retriever, querry_key="q")
