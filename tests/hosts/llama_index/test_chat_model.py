"""LlamaIndex language models where LangChain wants a chat model, and as router of the walk."""

import json
import time

import openai
import pytest
from blockbuster import blockbuster_ctx
from chat_server import too_many
from host_answers import turn_of
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from llama_index.core.llms import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CustomLLM,
    LLMMetadata,
    MockLLM,
)
from llama_models import HttpLLM
from pydantic import BaseModel, Field

from llama_index.retrievers.crabpath import CrabPathRetriever, LlamaIndexChatModel
from llama_index.retrievers.crabpath.chat_model import from_response

ROUTE = {"follow": [1], "drop": [], "stop": False, "reason": "it is named"}


class EchoLLM(CustomLLM):
    """Repeats what it is asked after a while, and takes no options."""

    @property
    def metadata(self):
        return LLMMetadata()

    def complete(self, prompt, formatted=False):  # noqa: FBT002  the signature of the base
        time.sleep(0.01)
        return CompletionResponse(text=prompt.removesuffix("\nassistant: "))

    def stream_complete(self, prompt, **_kwargs):
        """Never."""


class Follow(BaseModel):
    """Which pointers to follow."""

    follow: list[int] = Field(description="Numbers of the pointers.")
    stop: bool = False


@pytest.fixture
def chat(llm):
    """The model as LangChain sees it."""
    return LlamaIndexChatModel(llm=llm)


async def ask(model, given):
    """What a model says to the same, sync and async."""
    return [model.invoke(given), await model.ainvoke(given)]


async def test_answers_with_its_tokens(chat, chat_server):
    """Text and usage, as the server sent them; roles arrive; blocks nobody."""
    for message in await ask(chat, [SystemMessage("Be short."), HumanMessage("hello")]):
        assert isinstance(message, AIMessage)
        assert message.content == "ok"
        assert message.usage_metadata["output_tokens"] == 1
        assert message.usage_metadata["input_tokens"] > 1
    for request in chat_server.requests:
        assert [m["role"] for m in request["messages"]] == ["system", "user"]
    with blockbuster_ctx():
        assert chat.get_num_tokens("hello world") == 2
        assert (await chat.ainvoke("hello")).content == "ok"


async def test_gives_structured_output(chat, chat_server):
    """By a required tool call with the schema as it is; prose in its place is handed on."""
    chat_server.says = {"follow": [1, 3]}
    structured = chat.with_structured_output(Follow, include_raw=True)
    for found in await ask(structured, "which?"):
        assert found["parsed"] == Follow(follow=[1, 3])
        assert found["raw"].usage_metadata["total_tokens"] > 0
    for request in chat_server.requests:
        (tool,) = request["tools"]
        assert tool["function"]["name"] == "Follow"
        assert tool["function"]["parameters"]["required"] == ["follow"]
        assert request["tool_choice"] == "required"
    chat_server.says = 'I would follow {"follow": [1]}'
    for found in await ask(structured, "which?"):
        assert (found["parsed"], found["raw"].content) == (None, chat_server.says)
    with pytest.raises(NotImplementedError, match="does not support function calling"):
        LlamaIndexChatModel(llm=MockLLM()).with_structured_output(Follow)


async def test_tool_calls_go_both_ways(chat, chat_server):
    chat_server.says = {"follow": [2]}
    bound = chat.bind_tools([Follow], tool_choice="auto")
    called = bound.invoke("which?")
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("Follow", {"follow": [2]})
    chat_server.says = "done"
    history = [HumanMessage("which?"), called, ToolMessage("followed", tool_call_id=call["id"])]
    assert (await bound.ainvoke(history)).content == "done"
    sent = chat_server.requests[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"] == call["id"]
    assert chat_server.requests[-1]["tool_choice"] == "auto"


async def test_limits_and_errors_of_the_provider_come_through(llm, chat_server):
    chat = LlamaIndexChatModel(llm=llm, max_tokens=7)
    chat.invoke("hello")
    assert chat_server.requests[-1]["max_tokens"] == 7
    # LlamaIndex's own async method of a custom model runs it on the event loop.
    echo = LlamaIndexChatModel(llm=EchoLLM(), max_tokens=7)  # has no field for that
    with blockbuster_ctx():
        assert (await echo.ainvoke("hello")).text == "user: hello"
    assert echo.invoke("hello").text == "user: hello"
    chat_server.says = too_many()
    with pytest.raises(openai.RateLimitError):
        chat.invoke("hello")
    with pytest.raises(openai.RateLimitError):
        await chat.ainvoke("hello")


@pytest.mark.parametrize(
    ("raw", "extra", "wanted"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2}}, {}, (5, 2)),
        ({"usage": {"input_tokens": 5, "output_tokens": 2}}, {}, (5, 2)),
        ({"usage_metadata": {"prompt_token_count": 5, "candidates_token_count": 2}}, {}, (5, 2)),
        ({"prompt_eval_count": 5, "eval_count": 2}, {}, (5, 2)),
        (None, {"prompt_tokens": 5, "completion_tokens": 2}, (5, 2)),
        (ChatMessage(), {"prompt_tokens": 5}, (5, 0)),
        (None, {}, None),
        ("text", {"prompt_tokens": "five"}, None),
    ],
)
def test_usage_is_found_wherever_it_is(raw, extra, wanted):
    """OpenAI, Anthropic, Gemini and Ollama call it differently; none is no error."""
    response = ChatResponse(message=ChatMessage(content="x"), raw=raw, additional_kwargs=extra)
    usage = from_response(response).usage_metadata
    assert (usage and (usage["input_tokens"], usage["output_tokens"])) == wanted


@pytest.mark.parametrize("functions", [True, False])
async def test_it_routes(place, embeddings, chat_server, question, closing, functions):
    """By a tool call, or by JSON in words; its tokens stand in the turn."""
    chat_server.says = ROUTE if functions else f"I say {json.dumps(ROUTE)}, gladly."
    llm = HttpLLM(url=chat_server.url, functions=functions)
    retriever = closing(CrabPathRetriever.from_existing(place, embeddings, router=llm))
    for nodes in (retriever.retrieve(question), await retriever.aretrieve(question)):
        turn = retriever.memory.explain(turn_of(nodes)).turn
        assert (turn.llm_calls, turn.llm_failures) == (1, 0)
        assert turn.routing == ("it is named",)
        assert turn.llm_input_tokens > 50
        assert turn.llm_output_tokens > 5
    assert all(bool(request.get("tools")) == functions for request in chat_server.requests)
    assert all(request["max_tokens"] == 180 for request in chat_server.requests)
