"""LlamaIndex language models where LangChain wants a chat model, over real HTTP."""

import time

import blockbuster
import openai
import pytest
from chat_server import too_many
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
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

from llama_index.retrievers.crabpath import LlamaIndexChatModel
from llama_index.retrievers.crabpath.messages import find_usage, from_response


class EchoLLM(CustomLLM):
    """Repeats what it is asked, and takes no options."""

    @property
    def metadata(self):
        """Nothing special."""
        return LLMMetadata()

    def complete(self, prompt, formatted=False):  # noqa: FBT002  the signature of the base
        """The prompt."""
        return CompletionResponse(text=prompt.removesuffix("\nassistant: "))

    def stream_complete(self, prompt, **_kwargs):
        """Never."""


class Follow(BaseModel):
    """Which pointers to follow."""

    follow: list[int] = Field(description="Numbers of the pointers.")
    stop: bool = False


@pytest.fixture
def model(llm):
    """The model as LangChain sees it."""
    return LlamaIndexChatModel(llm=llm)


async def both(model, given):
    """What a model says to the same, sync and async."""
    return [model.invoke(given), await model.ainvoke(given)]


async def test_answers_with_its_tokens(model, chat_server):
    """Text and usage, as the server sent them; roles arrive."""
    for message in await both(model, [SystemMessage("Be short."), HumanMessage("hello")]):
        assert isinstance(message, AIMessage)
        assert message.content == "ok"
        assert message.usage_metadata["output_tokens"] == 1
        assert message.usage_metadata["input_tokens"] > 1
    for request in chat_server.requests:
        assert [m["role"] for m in request["messages"]] == ["system", "user"]


async def test_gives_structured_output(model, chat_server):
    """By a required tool call with the schema as it is."""
    chat_server.says = {"follow": [1, 3]}
    structured = model.with_structured_output(Follow, include_raw=True)
    for found in await both(structured, "which?"):
        assert found["parsed"] == Follow(follow=[1, 3])
        assert found["raw"].usage_metadata["total_tokens"] > 0
    for request in chat_server.requests:
        (tool,) = request["tools"]
        assert tool["function"]["name"] == "Follow"
        assert tool["function"]["parameters"]["required"] == ["follow"]
        assert request["tool_choice"] == "required"


async def test_prose_in_place_of_a_call_is_no_error(model, chat_server):
    """It is handed on, so that the router can read it."""
    chat_server.says = 'I would follow {"follow": [1]}'
    structured = model.with_structured_output(Follow, include_raw=True)
    for found in await both(structured, "which?"):
        assert found["parsed"] is None
        assert found["raw"].content == 'I would follow {"follow": [1]}'


async def test_a_model_without_functions_says_so(chat_server):
    """As LangChain's own do; it still answers in words."""
    plain = LlamaIndexChatModel(llm=HttpLLM(url=chat_server.url, functions=False))
    for bare in (plain, LlamaIndexChatModel(llm=MockLLM())):
        with pytest.raises(NotImplementedError, match="does not support function calling"):
            bare.with_structured_output(Follow)
    assert (await plain.ainvoke("hello")).content == "ok"
    assert "hello" in LlamaIndexChatModel(llm=MockLLM()).invoke("hello").content


async def test_tool_calls_go_both_ways(model, chat_server):
    """A call that was answered is in the history of the next request."""
    chat_server.says = {"follow": [2]}
    bound = model.bind_tools([Follow], tool_choice="auto")
    called = bound.invoke("which?")
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("Follow", {"follow": [2]})
    chat_server.says = "done"
    told = [HumanMessage("which?"), called, ToolMessage("followed", tool_call_id=call["id"])]
    assert (await bound.ainvoke(told)).content == "done"
    sent = chat_server.requests[-1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"] == call["id"]
    assert chat_server.requests[-1]["tool_choice"] == "auto"


async def test_errors_of_the_provider_come_through(model, chat_server):
    """A router decides what to do with them."""
    chat_server.says = lambda _body: too_many()
    with pytest.raises(openai.RateLimitError):
        model.invoke("hello")
    with pytest.raises(openai.RateLimitError):
        await model.ainvoke("hello")


def test_answers_can_be_kept_short(llm, chat_server):
    """Where the model has a field for that."""
    LlamaIndexChatModel(llm=llm, max_tokens=7).invoke("hello")
    assert chat_server.requests[-1]["max_tokens"] == 7
    assert LlamaIndexChatModel(llm=EchoLLM(), max_tokens=7).invoke("hello").content == "user: hello"


async def test_it_does_not_block(model):
    """Neither a request nor the counting of tokens."""
    with blockbuster.blockbuster_ctx():
        assert model.get_num_tokens("hello world") == 2
        assert (await model.ainvoke("hello")).content == "ok"


async def test_a_custom_model_does_not_block():
    """LlamaIndex's own async method of such a model runs it on the event loop."""

    class Slow(EchoLLM):
        def complete(self, prompt, formatted=False):  # noqa: FBT002
            time.sleep(0.05)
            return super().complete(prompt, formatted)

    with blockbuster.blockbuster_ctx():
        said = await LlamaIndexChatModel(llm=Slow()).ainvoke("Well?")
    assert said.text == "user: Well?"


def test_in_a_chain(model):
    """It pipes, and counts tokens without a network."""
    assert (model | StrOutputParser()).invoke("hello") == "ok"
    assert model.get_num_tokens("hello world") == 2


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
    usage = find_usage(response)
    found = usage and (usage["input_tokens"], usage["output_tokens"])
    assert found == wanted
    assert from_response(response).usage_metadata == usage
