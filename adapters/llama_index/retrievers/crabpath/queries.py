"""Options, filters and bundles of a query, as LlamaIndex has them."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.language_models import BaseChatModel
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import LLM
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from crabpath_retrievers import CrabPath, InvalidInputError
from crabpath_retrievers.integration import (
    DEEPEST,
    Answer,
    Embedder,
    OpenOptions,
    Operations,
    QueryOptions,
    RetrieverOptions,
    Router,
    Vector,
    perform,
    perform_sync_or_async,
)
from llama_index.retrievers.crabpath.chat_model import LlamaIndexChatModel

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.CONTAINS: "$contains",
}
_CONDITIONS = {FilterCondition.AND: "$and", FilterCondition.OR: "$or"}

Filters = MetadataFilters | Mapping[str, Any] | None


def to_where(filters: Filters) -> dict[str, Any] | None:
    """Convert filters to a condition of Chroma; a mapping is returned as it is."""
    if filters is None:
        return None
    if isinstance(filters, Mapping):
        return dict(filters)
    if not isinstance(filters, MetadataFilters):
        msg = (
            f"filters cannot be a {type(filters).__name__}: "
            "pass MetadataFilters, or a condition of the vector store"
        )
        raise InvalidInputError(msg)
    return _join(filters)


def _join(filters: MetadataFilters, depth: int = 1) -> dict[str, Any]:
    condition = filters.condition or FilterCondition.AND
    if condition not in _CONDITIONS:
        msg = "CrabPath cannot filter by condition 'not': use the operators '!=' and 'nin'"
        raise InvalidInputError(msg)
    if depth > DEEPEST:
        msg = f"a filter has at most {DEEPEST} nested levels, and this one more: ask in several"
        raise InvalidInputError(msg)
    parts = [
        _join(part, depth + 1) if isinstance(part, MetadataFilters) else _convert_filter(part)
        for part in filters.filters
    ]
    return parts[0] if len(parts) == 1 else {_CONDITIONS[condition]: parts}


def _convert_filter(part: MetadataFilter) -> dict[str, Any]:
    operator = _OPERATORS.get(part.operator)
    if operator is None or part.value is None:
        known = ", ".join(repr(name.value) for name in _OPERATORS)
        msg = (
            f"CrabPath cannot filter {part.key!r} by {part.operator.value!r} "
            f"with {part.value!r}: use a value and one of {known}"
        )
        raise InvalidInputError(msg)
    return {part.key: {operator: part.value}}


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


def retrieve_bundle(
    memory: CrabPath, bundle: QueryBundle, options: QueryOptions
) -> Operations[Answer]:
    """Retrieve for a bundle, with its embedding or the mean of its embedding strings."""
    vector: Any = bundle.embedding
    if texts := _strings_to_embed(bundle):
        vector = yield from perform(_mean_embedding, texts, memory.embedder)
    given: QueryOptions = {**options, "vector": vector}
    answer = yield from perform_sync_or_async(
        lambda: memory.retrieve(bundle.query_str, **given),
        lambda: memory.aio.retrieve(bundle.query_str, **given),
    )
    return answer


def _strings_to_embed(bundle: QueryBundle) -> list[str]:
    """Return texts to embed instead of the query, such as those of HyDE; empty for none."""
    given = bundle.custom_embedding_strs or []
    return [] if bundle.embedding is not None or given == [bundle.query_str] else list(given)


def _mean_embedding(texts: list[str], embedder: Embedder) -> Vector | None:
    """Average the unit vectors of texts, shape ``[d]``, as LlamaIndex does.

    Texts without a usable vector do not count; None where all are.
    """
    vectors = []
    for text in texts:
        with suppress(InvalidInputError):
            vectors.append(embedder.query(text))
    return np.mean(vectors, axis=0) if vectors else None
