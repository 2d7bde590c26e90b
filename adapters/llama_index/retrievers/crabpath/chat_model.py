"""Adapts language models of LlamaIndex to LangChain's chat models.

Tools that a model of LlamaIndex may call, and that the caller runs.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from llama_index.core.base.llms import types
from llama_index.core.llms import LLM, ChatMessage, ChatResponse, CustomLLM, MessageRole
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools.types import BaseTool, ToolMetadata, ToolOutput
from llama_index.core.utils import get_tokenizer
from pydantic import PrivateAttr

from crabpath_retrievers.integration import arun_with_timeout


@dataclass
class _Schema(ToolMetadata):
    """Metadata with a given JSON schema of the parameters."""

    parameters: dict[str, Any] = field(default_factory=dict)

    def get_parameters_dict(self) -> dict[str, Any]:
        return self.parameters


class OfferedTool(BaseTool):
    """A tool described in OpenAI's format."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Describe the function of a schema."""
        function = schema["function"]
        self._metadata = _Schema(
            description=function.get("description", ""),
            name=function["name"],
            fn_schema=None,
            parameters=function.get("parameters", {}),
        )

    @property
    def metadata(self) -> ToolMetadata:
        """Name, description and parameters."""
        return self._metadata

    def __call__(self, input: Any) -> ToolOutput:  # noqa: A002  the name in the base
        """Refuse to run: the caller of the model runs the tool."""
        raise NotImplementedError


class LlamaIndexChatModel(BaseChatModel):
    """A LlamaIndex ``LLM`` as a LangChain chat model, for ``ChatModelRouter`` and chains.

    ::

        router = ChatModelRouter(LlamaIndexChatModel(llm=llm), RouterSettings(timeout=2))
        CrabPathRetriever.from_documents(documents, router=router)

    Function-calling models support tools and structured output. Other models refuse both with
    ``NotImplementedError``, as LangChain's own do; a router then parses their text. Tokens are
    counted if the model reports them.
    """

    llm: LLM
    """The model."""
    max_tokens: int | None = None
    """Largest number of tokens of an answer, for models with a field of this name."""
    # Loaded here: loading it at first use would block the event loop.
    _tokenizer: Callable[[str], list[Any]] = PrivateAttr(default_factory=get_tokenizer)

    @property
    def _llm_type(self) -> str:
        return "llama-index"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"class_name": self.llm.class_name(), "model_name": self.llm.metadata.model_name}

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let the model call tools.

        Args:
            tools: Functions, classes or schemas as LangChain takes them.
            tool_choice: ``"any"``, ``"required"``, True or a name make a call required.
            kwargs: Passed on to the model.

        Raises:
            NotImplementedError: The model does not support function calling.
        """
        if not self._calls_functions():
            msg = f"{self.llm.class_name()} does not support function calling: ask it for text"
            raise NotImplementedError(msg)
        required = tool_choice not in (None, False, "auto", "none")
        offered = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=offered, tool_required=required, **kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """Tokenize a text with LlamaIndex's tokenizer, which needs no network."""
        return list(self._tokenizer(text))

    def _calls_functions(self) -> bool:
        return (
            isinstance(self.llm, FunctionCallingLLM) and self.llm.metadata.is_function_calling_model
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        given = self._merge_options(stop, kwargs)
        if "tools" in given:
            response = self._functions.chat_with_tools(chat_history=to_messages(messages), **given)
        else:
            response = self.llm.chat(to_messages(messages), **given)
        return self._to_result(response)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        given = self._merge_options(stop, kwargs)
        if "tools" in given:
            history = to_messages(messages)
            response = await self._functions.achat_with_tools(chat_history=history, **given)
        elif _is_blocking(self.llm):
            response = await arun_with_timeout(
                lambda: self.llm.chat(to_messages(messages), **given)
            )
        else:
            response = await self.llm.achat(to_messages(messages), **given)
        return self._to_result(response)

    @property
    def _functions(self) -> FunctionCallingLLM:
        assert isinstance(self.llm, FunctionCallingLLM), "bind_tools refuses other models"  # noqa: S101
        return self.llm

    def _merge_options(self, stop: list[str] | None, options: dict[str, Any]) -> dict[str, Any]:
        given = dict(options)
        if self.max_tokens is not None and "max_tokens" in type(self.llm).model_fields:
            given["max_tokens"] = self.max_tokens
        if stop is not None:
            given["stop"] = stop
        if "tools" in given:
            given["tools"] = [OfferedTool(schema) for schema in given["tools"]]
        return given

    def _to_result(self, response: ChatResponse) -> ChatResult:
        calls = []
        if self._calls_functions():
            calls = self._functions.get_tool_calls_from_response(
                response, error_on_no_tool_call=False
            )
        message = from_response(response, calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _is_blocking(llm: LLM) -> bool:
    """Whether a model inherits LlamaIndex's async method, which blocks the event loop."""
    # The instrumentation wraps methods anew in every class.
    own, known = inspect.unwrap(type(llm).achat), inspect.unwrap(CustomLLM.achat)
    return isinstance(llm, CustomLLM) and own is known


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
