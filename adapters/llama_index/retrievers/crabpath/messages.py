"""Converts messages between LangChain and LlamaIndex."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call
from llama_index.core.base.llms import types
from llama_index.core.llms import ChatMessage, ChatResponse, MessageRole
from llama_index.core.llms.llm import ToolSelection

_ROLES = {
    "system": MessageRole.SYSTEM,
    "human": MessageRole.USER,
    "ai": MessageRole.ASSISTANT,
    "tool": MessageRole.TOOL,
}
# Providers' names of input and output tokens.
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "eval_count")
_PLACES = ("usage", "usage_metadata")


def to_messages(messages: Iterable[BaseMessage]) -> list[ChatMessage]:
    """Convert LangChain messages to LlamaIndex's; content other than text is left out."""
    return [_to_message(message) for message in messages]


def from_response(response: ChatResponse, calls: Sequence[ToolSelection] = ()) -> AIMessage:
    """Convert a LlamaIndex response to a LangChain message, with tool calls and tokens."""
    return AIMessage(
        content=response.message.content or "",
        tool_calls=[
            tool_call(name=call.tool_name, args=call.tool_kwargs, id=call.tool_id) for call in calls
        ],
        usage_metadata=find_usage(response),
    )


def find_usage(response: ChatResponse) -> UsageMetadata | None:
    """Find the token counts of a response; None if the provider reports none."""
    raw = _to_mapping(response.raw)
    places = [raw.get(name) for name in _PLACES]
    for place in (*places, raw, response.additional_kwargs):
        held = _to_mapping(place)
        given, made = _find_count(held, _INPUT), _find_count(held, _OUTPUT)
        if given is not None or made is not None:
            put, got = given or 0, made or 0
            return UsageMetadata(input_tokens=put, output_tokens=got, total_tokens=put + got)
    return None


def _to_message(message: BaseMessage) -> ChatMessage:
    blocks: list[types.ContentBlock] = [types.TextBlock(text=str(message.text))]
    extra = {}
    if isinstance(message, ToolMessage):
        extra["tool_call_id"] = message.tool_call_id
    # LlamaIndex 0.13 has no blocks for tool calls.
    if isinstance(message, AIMessage) and hasattr(types, "ToolCallBlock"):
        blocks += [
            types.ToolCallBlock(
                tool_call_id=call["id"], tool_name=call["name"], tool_kwargs=call["args"]
            )
            for call in message.tool_calls
        ]
    role = _ROLES.get(message.type, MessageRole.USER)
    return ChatMessage(role=role, blocks=blocks, additional_kwargs=extra)


def _to_mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return vars(value) if hasattr(value, "__dict__") else {}


def _find_count(held: Mapping[str, Any], names: Sequence[str]) -> int | None:
    found = (held[name] for name in names if isinstance(held.get(name), int))
    return next(found, None)
