"""Adapts language models of LlamaIndex to LangChain's chat models.

Tools that a model of LlamaIndex may call, and that the caller runs.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from llama_index.core.llms import LLM, ChatResponse, CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools.types import BaseTool, ToolMetadata, ToolOutput
from llama_index.core.utils import get_tokenizer
from pydantic import PrivateAttr

from crabpath_retrievers.integration import arun_with_timeout
from llama_index.retrievers.crabpath.messages import from_response, to_messages


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
        """Never called: the caller of the model runs the tool."""
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
