"""The node that retrieves: every kind of state, sync and async, and what it refuses."""

import json

import pytest
from host_answers import CORRECTION, ids, texts
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import StateGraph

from crabpath_retrievers import CrabPathRetriever, InvalidInputError
from langgraph_crabpath import (
    CrabPathMiddleware,
    crabpath_feedback,
    crabpath_retrieve,
    create_crabpath_tool,
)


def graph(state, retriever):
    """A graph of one node, which names itself."""
    builder = StateGraph(state)
    builder.add_node(crabpath_retrieve(retriever))
    builder.set_entry_point("crabpath_retrieve")
    return builder.compile()


async def test_finds_what_the_retriever_finds(retriever, question, called, state):
    """For the question of the state; else for the last human message, not the last message."""
    messages = [HumanMessage("Hello"), HumanMessage(question), AIMessage("Let me see.")]
    for given in ({"question": question}, {"messages": messages}):
        result = await called(graph(state, retriever), given)
        assert ids(result["documents"]) == ids(retriever.invoke(question))
        turns = {document.metadata["crabpath"]["turn_id"] for document in result["documents"]}
        assert turns == {result["turn_id"]}


def test_asks_messages_that_are_dicts(retriever, question):
    said = {"role": "user", "content": [{"type": "text", "text": question}]}
    result = crabpath_retrieve(retriever).invoke({"messages": [said]})
    assert ids(result["documents"]) == ids(retriever.invoke(question))


def test_every_key_of_the_state_can_have_another_name(retriever, question):
    node = crabpath_retrieve(
        retriever, query_key="q", documents_key="found", turn_key="t", options={"k": 1}
    )
    result = node.invoke({"q": question, "question": "something else"})
    assert set(result) == {"found", "t"}
    assert ids(result["found"]) == ids(retriever.invoke(question, k=1))


async def test_streams_every_hop_and_then_the_result_of_the_state(retriever, question, dict_state):
    """Plain data: JSON carries it unchanged; the async stream has the same."""
    built, asked = graph(dict_state, retriever), {"question": question}
    events = list(built.stream(asked, stream_mode=["custom", "updates"]))
    custom = [event for mode, event in events if mode == "custom"]
    (update,) = [event["crabpath_retrieve"] for mode, event in events if mode == "updates"]
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
    assert json.loads(json.dumps(custom)) == custom
    streamed = [event async for event in built.astream(asked, stream_mode="custom")]
    assert [event["type"] for event in streamed] == [event["type"] for event in custom]
    assert {event["type"] for event in custom[:-1]} == {"crabpath_hop"}


def test_an_empty_memory_still_has_a_turn(embeddings, question):
    empty = CrabPathRetriever.from_documents([], embeddings)
    result = crabpath_retrieve(empty).invoke({"question": question})
    assert result["documents"] == []
    assert empty.record(result["turn_id"], -1, correction=CORRECTION).status == "applied"
    assert texts(empty.invoke(question)) == [CORRECTION]
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
    with pytest.raises(InvalidInputError, match=sentence):
        await called(crabpath_retrieve(retriever), state)


def test_refuses_arguments_when_the_graph_is_built(retriever):
    for make in (crabpath_retrieve, crabpath_feedback, CrabPathMiddleware, create_crabpath_tool):
        with pytest.raises(InvalidInputError, match="pass a CrabPathRetriever, not a CrabPath"):
            make(retriever.memory)
    with pytest.raises(InvalidInputError, match=r"unknown options \['querry_key'\].*query_key"):
        crabpath_retrieve(retriever, querry_key="q")
