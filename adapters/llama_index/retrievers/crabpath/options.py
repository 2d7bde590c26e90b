"""How a memory is opened for LlamaIndex, and how its retriever asks it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from typing_extensions import TypedDict

from crabpath_retrievers.config import Settings
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.routing.policy import Router
from llama_index.retrievers.crabpath.chat_model import LlamaIndexChatModel
from llama_index.retrievers.crabpath.embeddings import EmbedModel, embeddings_of
from llama_index.retrievers.crabpath.filters import Filters


class Opening(TypedDict, total=False):
    """How a memory is opened: see :meth:`crabpath_retrievers.CrabPath.open`.

    A LlamaIndex ``LLM`` as ``router`` decides which ambiguous pointers are followed.
    """

    vectors: Any
    settings: Settings | None
    router: Router | BaseChatModel | LLM | None


class Fields(TypedDict, total=False):
    """Arguments of :class:`~llama_index.retrievers.crabpath.CrabPathRetriever`."""

    similarity_top_k: int
    namespace: str
    task_type: str | None
    filters: Filters
    explore: bool | int
    fill: bool
    distinct: bool
    max_tokens: int | None
    callback_manager: CallbackManager | None
    verbose: bool


class Existing(Opening, Fields, total=False):
    """Both."""


class Options(Existing, total=False):
    """Both, and where the memory is kept: a directory, a database URL or None."""

    path: str | Path | None


Split = tuple[dict[str, Any], dict[str, Any]]


def split(options: Options | Existing) -> Split:
    """The part that opens a memory, and the arguments of a retriever over it."""
    names = {"path", *Opening.__annotations__}
    opening = {name: value for name, value in options.items() if name in names}
    if isinstance(router := opening.get("router"), LLM):
        opening["router"] = LlamaIndexChatModel(llm=router)
    return opening, {name: value for name, value in options.items() if name not in names}


def filled(
    embed_model: EmbedModel, opening: dict[str, Any], fill: Callable[[CrabPath], object]
) -> CrabPath:
    """A memory that ``fill`` has put documents into; closed again when it fails."""
    memory = CrabPath.open(embeddings=embeddings_of(embed_model), **opening)
    try:
        fill(memory)
    except BaseException:
        memory.close()
        raise
    return memory
