"""Options of the LlamaIndex retriever and of the memory behind it."""

from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM

from crabpath_retrievers.integration import OpenOptions, RetrieverOptions, Router
from llama_index.retrievers.crabpath.chat_model import LlamaIndexChatModel
from llama_index.retrievers.crabpath.filters import Filters


class LlamaIndexOptions(RetrieverOptions, total=False):
    """Arguments of :class:`~llama_index.retrievers.crabpath.CrabPathRetriever`."""

    similarity_top_k: int
    """Nodes to return: exactly this many, as far as the memory holds them; 4 by default."""
    filters: Filters
    """LlamaIndex ``MetadataFilters``, or a condition in the vector store's language."""
    callback_manager: CallbackManager | None
    """As for LlamaIndex's ``BaseRetriever``."""
    verbose: bool
    """As for LlamaIndex's ``BaseRetriever``."""
    object_map: dict[str, Any] | None
    """What index nodes lead to, by index id; ``from_nodes`` and ``from_index`` add theirs."""


BASE_OPTIONS = ("callback_manager", "verbose", "object_map")
"""Options of LlamaIndex's ``BaseRetriever``."""


class ExistingOptions(OpenOptions, LlamaIndexOptions, total=False):
    """Options to open an existing memory, and of the retriever."""

    vectors: Any
    """Where vectors are searched, see :meth:`crabpath_retrievers.CrabPath.open`."""
    router: Router | BaseChatModel | LLM | None  # type: ignore[misc]  # wider than elsewhere
    """Decides which ambiguous edges are followed: as elsewhere, or a LlamaIndex ``LLM``."""


class NewOptions(ExistingOptions, total=False):
    """Options of opening, and the path of the memory: a directory, a database URL or None."""

    path: str | Path | None


def split_options(options: NewOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those that open a memory and those of its retriever."""
    names = {"path", "vectors", *OpenOptions.__annotations__}
    opening = {name: value for name, value in options.items() if name in names}
    if isinstance(router := opening.get("router"), LLM):
        opening["router"] = LlamaIndexChatModel(llm=router)
    return opening, {name: value for name, value in options.items() if name not in names}
