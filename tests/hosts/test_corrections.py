"""A correction says that it is one wherever it goes: many hosts pass texts on without metadata."""

import json

import pytest
from fastapi.testclient import TestClient
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.tools import create_retriever_tool
from mcp import Client

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback
from crabpath_server import create_app
from crabpath_server.mcp import create_local_server
from langgraph_crabpath import crabpath_retrieve, create_crabpath_tool
from llama_index.retrievers.crabpath import CrabPathRetriever as LlamaRetriever

QUESTION = "Which port does\nbilling use?"
RIGHT = "It is 8443 now."
MARKED = f'Correction of the answer to "Which port does billing use?":\n{RIGHT}'


def _ask_tool(memory):
    return create_retriever_tool(CrabPathRetriever(memory=memory), "search", ".").invoke(QUESTION)


def _ask_langgraph_tool(memory):
    return create_crabpath_tool(CrabPathRetriever(memory=memory)).invoke(QUESTION)


def _ask_node(memory):
    found = crabpath_retrieve(CrabPathRetriever(memory=memory)).invoke({"question": QUESTION})
    return "\n\n".join(item.page_content for item in found["documents"])


def _ask_llama_index(memory):
    found = LlamaRetriever(memory=memory).retrieve(QUESTION)
    return "\n\n".join(item.node.get_content() for item in found)


def _ask_rest(memory):
    client = TestClient(create_app(memory), base_url="http://127.0.0.1")
    found = client.post("/v1/query", json={"text": QUESTION}).json()
    return "\n\n".join(item["text"] for item in found["documents"])


@pytest.fixture
def memory():
    """A memory in which the answer to the question was wrong."""
    with CrabPath.open(embeddings=DeterministicFakeEmbedding(size=16)) as opened:
        opened.add_documents([Document("Billing listens on port 8080.", id="port")], split=False)
        turn = opened.retrieve(QUESTION).turn
        opened.record(turn.id, -1.0, used=["port"], correction=RIGHT)
        yield opened


@pytest.mark.parametrize(
    "ask", [_ask_tool, _ask_langgraph_tool, _ask_node, _ask_llama_index, _ask_rest]
)
def test_what_a_model_reads_says_that_it_is_a_correction(memory, ask):
    text = ask(memory)
    assert text.index(MARKED) < text.index("8080")


async def test_so_do_the_results_and_texts_of_mcp(memory):
    async with Client(create_local_server(memory)) as client:
        (found,) = (await client.call_tool("search", {"query": QUESTION})).content
        first = json.loads(found.text)["results"][0]
        assert first["title"] == MARKED.splitlines()[0]
        (read,) = (await client.call_tool("fetch", {"id": first["id"]})).content
        assert json.loads(read.text)["text"] == MARKED


def test_the_line_counts_in_a_budget_and_not_in_the_note(memory):
    (note,) = memory.notes()
    assert note.text == RIGHT
    assert not memory.retrieve(QUESTION, max_tokens=len(MARKED) // 4).documents
    whole = -(-len(MARKED) // 4) + len("Billing listens on port 8080.") // 4 + 1
    first, second = memory.retrieve(QUESTION, max_tokens=whole).documents
    assert (first.node.content, second.node.id) == (MARKED, "port")


def test_without_a_question_it_says_no_more(memory):
    memory.correct(RIGHT, id="bare", namespace="ann")
    assert memory.get_by_ids("bare", namespace="ann")[0].page_content == f"Correction:\n{RIGHT}"


def test_what_was_shown_and_edited_has_the_line_once(memory):
    shown = memory.retrieve(QUESTION)
    edited = shown.documents[0].node.content.replace(RIGHT, "Billing listens on port 7000.")
    note = shown.documents[0].node.id
    memory.record(Feedback(shown.turn.id, -1.0, irrelevant=[note], correction=edited))
    first = memory.retrieve(QUESTION).documents[0].node.content
    assert first == MARKED.replace(RIGHT, "Billing listens on port 7000.")
