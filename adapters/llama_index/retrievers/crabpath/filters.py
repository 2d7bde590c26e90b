"""Converts metadata filters of LlamaIndex to conditions of Chroma."""

from collections.abc import Mapping
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.integration import DEEPEST

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
