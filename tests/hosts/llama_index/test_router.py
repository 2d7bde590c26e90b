"""A LlamaIndex language model as router of the walk."""

import json

import pytest
from chat_server import too_many
from llama_models import HttpLLM

from crabpath_retrievers import ChatModelRouter, RouterSettings
from llama_index.retrievers.crabpath import CrabPathRetriever, LlamaIndexChatModel, turns_of

ANSWER = {"follow": [1], "drop": [], "stop": False, "reason": "it is named"}


@pytest.fixture
def routed(documents, embeddings, chat_server):
    """Makes retrievers whose router is a model over HTTP; closes them."""
    made = []

    def make(llm):
        made.append(CrabPathRetriever.from_documents(documents, embeddings, router=llm))
        return made[-1]

    yield make
    for retriever in made:
        retriever.memory.close()


def turn_of(retriever, nodes):
    """The record of an answer."""
    (turn,) = turns_of(nodes)
    return retriever.memory.explain(turn).turn


@pytest.mark.parametrize("functions", [True, False])
async def test_it_decides(routed, chat_server, question, functions):
    """By a tool call, or by JSON in words; its tokens stand in the turn; sync and async."""
    chat_server.says = ANSWER if functions else f"I say {json.dumps(ANSWER)}, gladly."
    retriever = routed(HttpLLM(url=chat_server.url, functions=functions))
    for nodes in (retriever.retrieve(question), await retriever.aretrieve(question)):
        turn = turn_of(retriever, nodes)
        assert (turn.llm_calls, turn.llm_failures) == (1, 0)
        assert turn.routing == ("it is named",)
        assert turn.llm_input_tokens > 50
        assert turn.llm_output_tokens > 5
    assert all(bool(request.get("tools")) == functions for request in chat_server.requests)
    assert all(request["max_tokens"] == 180 for request in chat_server.requests)


async def test_where_it_fails_the_policy_decides(routed, chat_server, question):
    """The answer is that of a retriever without a model."""
    chat_server.says = too_many()
    settings = RouterSettings(max_retries=0)
    model = LlamaIndexChatModel(llm=HttpLLM(url=chat_server.url))
    retriever, bare = routed(ChatModelRouter(model, settings)), routed(None)
    wanted = [item.node_id for item in bare.retrieve(question)]
    for nodes in (retriever.retrieve(question), await retriever.aretrieve(question)):
        assert [item.node_id for item in nodes] == wanted
        assert turn_of(retriever, nodes).llm_failures == 1
