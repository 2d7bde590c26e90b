"""One language of filters, translated for each vector store.

A filter is a dictionary as Chroma reads it: ``{"key": value}``, ``{"key": {"$gte": 1, "$lt": 5}}``,
``{"$or": [...]}``. Several keys or operators must all hold. A record without the key satisfies
``$ne`` and ``$nin`` alone. Filters of a store's own kind are handed on as they are.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError

_ORDERS = ("$gt", "$gte", "$lt", "$lte")
_LISTS = ("$in", "$nin")
_GROUPS = ("$and", "$or")
OPERATORS = ("$eq", "$ne", *_ORDERS, *_LISTS, *_GROUPS)
"""All operators of the language."""

_MILVUS_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MILVUS_WORDS = frozenset(
    {"and", "or", "not", "in", "like", "exists", "is", "null", "true", "false"}
)
_MILVUS_SIGNS = {"$eq": "==", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class KeyCondition(NamedTuple):
    """One condition on one key; the value of ``$in`` and ``$nin`` is a list."""

    key: str
    operator: str
    value: Any


class Group(NamedTuple):
    """Conditions of which all (``$and``) or one (``$or``) must hold; never empty."""

    operator: str
    parts: "tuple[Condition, ...]"


Condition: TypeAlias = KeyCondition | Group


def parse_filter(condition: Mapping[str, Any], store: str) -> Condition:
    """The condition that a dictionary describes.

    Args:
        condition: The dictionary, not empty.
        store: Name of the store, for messages.

    Raises:
        InvalidInputError: It is none of the language.
    """
    parts = [part for key, value in condition.items() for part in _parse_entry(key, value, store)]
    if not parts:
        msg = f"the filter for {store} has an empty condition: leave it out"
        raise InvalidInputError(msg)
    return _join("$and", parts)


def _parse_entry(key: object, value: object, store: str) -> list[Condition]:
    if not isinstance(key, str):
        msg = f"the filter for {store} has the key {format_value(key)}: keys are texts"
        raise InvalidInputError(msg)
    if key in _GROUPS:
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, Mapping) for v in value):
            msg = f"{key} in the filter for {store} needs a list of conditions"
            raise InvalidInputError(msg)
        if not value:
            msg = f"{key} in the filter for {store} has no conditions: leave it out"
            raise InvalidInputError(msg)
        return [_join(key, [parse_filter(each, store) for each in value])]
    if key.startswith("$"):
        raise _refuse_operator(key, store)
    if isinstance(value, Mapping):
        if not value:
            msg = f"the filter for {store} has no condition on {key!r}: leave it out"
            raise InvalidInputError(msg)
        return [_parse_comparison(key, name, given, store) for name, given in value.items()]
    return [_parse_comparison(key, "$eq", value, store)]


def _parse_comparison(key: str, operator: object, value: Any, store: str) -> KeyCondition:
    if operator not in OPERATORS or operator in _GROUPS:
        raise _refuse_operator(operator, store)
    name = str(operator)
    if name in _LISTS:
        fits = isinstance(value, (list, tuple)) and bool(value) and all(map(_is_scalar, value))
        kind = "a list of texts, numbers or booleans"
        value = list(value) if fits else value
    elif name in _ORDERS:
        fits, kind = _is_scalar(value) and not isinstance(value, (str, bool)), "a number"
    else:
        fits, kind = _is_scalar(value), "a text, a number or a boolean"
    if not fits:
        msg = f"{name} on {key!r} in the filter for {store} needs {kind}, not {format_value(value)}"
        raise InvalidInputError(msg)
    return KeyCondition(key, name, value)


def _is_scalar(value: object) -> bool:
    if isinstance(value, float):
        return abs(value) < float("inf")  # False for NaN, too
    return isinstance(value, (str, int))


def _refuse_operator(operator: object, store: str) -> InvalidInputError:
    shown = format_value(operator)
    return InvalidInputError(
        f"{store} cannot filter with {shown}: use one of {', '.join(OPERATORS)}"
    )


def _join(operator: str, parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else Group(operator, tuple(parts))


def is_satisfied(condition: Condition, metadata: Mapping[str, Any]) -> bool:
    """Whether metadata satisfies a condition; a text, a number and a boolean are never equal."""
    if isinstance(condition, Group):
        decide = all if condition.operator == "$and" else any
        return decide(is_satisfied(part, metadata) for part in condition.parts)
    key, operator, value = condition
    own = metadata.get(key)
    if operator in ("$eq", "$ne"):
        return _is_equal(own, value) == (operator == "$eq")
    if operator in _LISTS:
        return any(_is_equal(own, each) for each in value) == (operator == "$in")
    if isinstance(own, bool) or not isinstance(own, (int, float)):
        return False
    orders = {"$gt": own > value, "$gte": own >= value, "$lt": own < value, "$lte": own <= value}
    return bool(orders[operator])


def _is_equal(own: object, value: object) -> bool:
    return own == value and isinstance(own, bool) == isinstance(value, bool)


def to_chroma(condition: Condition) -> dict[str, Any]:
    """The condition as Chroma's ``where``, with one operator for each key."""
    if isinstance(condition, Group):
        return {condition.operator: [to_chroma(part) for part in condition.parts]}
    return {condition.key: {condition.operator: condition.value}}


def to_postgres(condition: Condition) -> dict[str, Any]:
    """The condition as ``PGVectorStore`` reads it.

    Raises:
        InvalidInputError: A key is no identifier.
    """
    if isinstance(condition, Group):
        return {condition.operator: [to_postgres(part) for part in condition.parts]}
    key, operator, value = condition
    if not (key.isascii() and key.isidentifier()):
        msg = f"PGVectorStore cannot filter by the key {key!r}: it needs letters, digits and _"
        raise InvalidInputError(msg)
    if operator in _LISTS:
        # Its lists have values of one type, which is never boolean.
        group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
        parts = [KeyCondition(key, single, each) for each in value]
        return to_postgres(_join(group, parts))
    # A cast to integer would fail where another record has a fraction.
    number = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    translated = {key: {operator: number}}
    if operator == "$ne":  # null in SQL is not unequal either
        return {"$or": [translated, {key: {"$exists": False}}]}
    return translated


def to_milvus(condition: Condition) -> str:
    """The condition as an expression of Milvus; values are literals that cannot end early.

    Raises:
        InvalidInputError: A key is no name of Milvus.
    """
    if isinstance(condition, Group):
        sign = " and " if condition.operator == "$and" else " or "
        return sign.join(f"({to_milvus(part)})" for part in condition.parts)
    key, operator, value = condition
    if not _MILVUS_KEY.fullmatch(key) or key.lower() in _MILVUS_WORDS:
        msg = f"Milvus cannot filter by the key {key!r}: it needs letters, digits and _"
        raise InvalidInputError(msg)
    if operator in _LISTS:
        group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
        return to_milvus(_join(group, [KeyCondition(key, single, each) for each in value]))
    compared = f"{key} {_MILVUS_SIGNS[operator]} {quote_milvus(value)}"
    # A field that is absent is neither equal nor unequal.
    return f"({compared}) or ({key} is null)" if operator == "$ne" else compared


def quote_milvus(value: Any) -> str:
    """A value as literal of an expression of Milvus."""
    return json.dumps(value, ensure_ascii=False)


def to_qdrant(condition: Condition, prefix: str = "metadata") -> Any:
    """The condition as a ``models.Filter`` of Qdrant over the payload under ``prefix``.

    Raises:
        InvalidInputError: A key cannot be written as a path of Qdrant.
    """
    from qdrant_client import models

    if isinstance(condition, Group):
        parts = [to_qdrant(part, prefix) for part in condition.parts]
        if condition.operator == "$and":
            return models.Filter(must=parts)
        return models.Filter(should=parts)
    key, operator, value = condition
    if not key or '"' in key or "\\" in key:
        msg = f'Qdrant cannot filter by the key {key!r}: it needs one without " and \\'
        raise InvalidInputError(msg)
    path = f"{prefix}.{key}" if _MILVUS_KEY.fullmatch(key) else f'{prefix}."{key}"'
    if operator in _ORDERS:
        bounds = models.Range(**{operator[1:]: value})
        return models.Filter(must=[models.FieldCondition(key=path, range=bounds)])

    def equal(each: Any) -> Any:
        if isinstance(each, float):
            return models.FieldCondition(key=path, range=models.Range(gte=each, lte=each))
        return models.FieldCondition(key=path, match=models.MatchValue(value=each))

    given = [equal(each) for each in (value if operator in _LISTS else [value])]
    if operator in ("$eq", "$in"):
        return models.Filter(should=given)
    return models.Filter(must_not=given)


def to_document_predicate(condition: Condition) -> Callable[[Any], bool]:
    """The condition as a function of a document, for LangChain's in-memory store."""
    return lambda document: is_satisfied(condition, document.metadata)


def to_metadata_predicate(condition: Condition) -> Callable[[Mapping[str, Any]], bool]:
    """The condition as a function of metadata, for FAISS."""
    return lambda metadata: is_satisfied(condition, metadata)
