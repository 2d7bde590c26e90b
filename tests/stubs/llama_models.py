"""Models of LlamaIndex for tests: one that counts, and one that speaks to a real HTTP server."""

import json
from collections.abc import Sequence
from typing import Any

import openai
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import LLMMetadata, ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage, ChatResponse, CompletionResponse, MessageRole
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

from crabpath_retrievers.vectors.embedder import _RELATED, _UNRELATED


class CountingEmbedding(BaseEmbedding):
    """The embedder of LangChain behind LlamaIndex's interface; notes what it was asked."""

    _embeddings: Any = PrivateAttr()
    _asked: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, embeddings: Any, **fields: Any) -> None:
        """Embed with ``embeddings``."""
        super().__init__(**fields)
        self._embeddings = embeddings

    @property
    def asked(self) -> list[str]:
        """Texts and queries in the order in which they were embedded."""
        return self._asked

    def _get_text_embedding(self, text: str) -> list[float]:
        if text not in {
            *_UNRELATED,
            *_RELATED,
        }:  # by which a memory learns the scale of an embedder
            self._asked.append(text)
        return self._embeddings.embed_documents([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        self._asked.append(query)
        return self._embeddings.embed_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        self._asked.append(f"async {query}")
        return await self._embeddings.aembed_query(query)


class HttpLLM(FunctionCallingLLM):
    """A chat model behind the OpenAI wire format, by OpenAI's own client."""

    url: str
    functions: bool = True
    max_tokens: int | None = None

    @property
    def metadata(self) -> LLMMetadata:
        """It chats, and calls functions unless told otherwise."""
        return LLMMetadata(
            model_name="m", is_chat_model=True, is_function_calling_model=self.functions
        )

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: Any = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: FBT001, FBT002  the signature of the base
        allow_parallel_tool_calls: bool = False,  # noqa: FBT001, FBT002
        tool_required: bool = False,  # noqa: FBT001, FBT002
        **kwargs: Any,
    ) -> dict[str, Any]:
        return {
            "messages": [*(chat_history or []), *([user_msg] if user_msg else [])],
            "tools": [tool.metadata.to_openai_tool() for tool in tools],
            "tool_choice": "required" if tool_required else "auto",
            **kwargs,
        }

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """One request."""
        with openai.OpenAI(base_url=self.url, api_key="x", max_retries=0) as client:
            return _response(client.chat.completions.create(**_request(messages, kwargs)))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """One request."""
        async with openai.AsyncOpenAI(base_url=self.url, api_key="x", max_retries=0) as client:
            return _response(await client.chat.completions.create(**_request(messages, kwargs)))

    def get_tool_calls_from_response(
        self, response: ChatResponse, **_kwargs: Any
    ) -> list[ToolSelection]:
        """The calls in a message."""
        return [
            ToolSelection(
                tool_id=block.tool_call_id or "",
                tool_name=block.tool_name,
                tool_kwargs=dict(block.tool_kwargs),
            )
            for block in response.message.blocks
            if isinstance(block, ToolCallBlock)
        ]

    def complete(self, prompt: str, **_kwargs: Any) -> CompletionResponse:
        """A chat of one message."""
        said = self.chat([ChatMessage(role="user", content=prompt)])
        return CompletionResponse(text=said.message.content or "", raw=said.raw)

    def stream_chat(self, *_args: Any, **_kwargs: Any) -> Any:
        """Never."""
        raise NotImplementedError

    astream_chat = stream_complete = astream_complete = acomplete = stream_chat


def _request(messages: Sequence[ChatMessage], options: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [_sent(message) for message in messages], **options}


def _sent(message: ChatMessage) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if calls:
        sent["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.tool_name, "arguments": json.dumps(call.tool_kwargs)},
            }
            for call in calls
        ]
    if message.role is MessageRole.TOOL:
        sent["tool_call_id"] = message.additional_kwargs["tool_call_id"]
    return sent


def _response(completion: Any) -> ChatResponse:
    said = completion.choices[0].message
    message = ChatMessage(role="assistant", content=said.content)
    message.blocks += [
        ToolCallBlock(
            tool_call_id=call.id,
            tool_name=call.function.name,
            tool_kwargs=json.loads(call.function.arguments),
        )
        for call in said.tool_calls or ()
    ]
    return ChatResponse(message=message, raw=completion)
