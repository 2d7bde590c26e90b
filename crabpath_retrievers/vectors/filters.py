"""Filters as each vector store reads them; what they say is in :mod:`~..core.filters`."""

import json
import re
from math import ceil, floor
from typing import Any

from crabpath_retrievers.core.filters import (
    LISTS,
    OF_LISTS,
    ORDERS,
    Condition,
    Group,
    KeyCondition,
    group_by_kind,
    is_fraction,
    join,
)
from crabpath_retrievers.errors import InvalidInputError

_MILVUS_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MILVUS_WORDS = frozenset(
    {"and", "or", "not", "in", "like", "exists", "is", "null", "true", "false"}
)
_MILVUS_SIGNS = {"$eq": "==", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


UNSTORED_KEYS = ("#", "$", "chroma:")
"""Keys of metadata that begin so are refused or hidden by Chroma."""


def to_chroma(condition: Condition) -> dict[str, Any]:
    """The condition as Chroma's ``where``, with one operator for each key.

    Raises:
        InvalidInputError: Chroma does not store a key.
    """
    if isinstance(condition, Group):
        return {condition.operator: [to_chroma(part) for part in condition.parts]}
    key, operator, value = condition
    if not key or key.startswith(UNSTORED_KEYS):
        msg = f"Chroma cannot filter by the key {key!r}: it stores none that begins so"
        raise InvalidInputError(msg)
    kinds = group_by_kind(value) if operator in LISTS else [value]  # a list has values of one type
    parts = [_exclude_cut(key, operator, each) for each in kinds]
    return parts[0] if len(parts) == 1 else {"$or" if operator == "$in" else "$and": parts}


_OTHERS = {"$eq": ("$and", "$ne"), "$ne": ("$or", "$eq"), "$in": ("$and", "$nin")}
_OTHERS |= {"$nin": ("$or", "$in"), "$gt": ("$or", "$gte"), "$lt": ("$or", "$lte")}
_OTHERS |= {"$gte": ("$and", "$gt"), "$lte": ("$and", "$lt")}


def _exclude_cut(key: str, operator: str, value: Any) -> dict[str, Any]:
    """One condition: Chroma compares whole numbers with 2.5 as if it were 2, so say more."""
    one = {key: {operator: value}}
    if not is_fraction(value[0] if operator in LISTS else value) or operator in OF_LISTS:
        return one
    if operator in LISTS:
        near: Any = [int(each) for each in value]
    elif operator in ORDERS:
        near = (ceil if operator in ("$gt", "$lte") else floor)(value)
    else:
        near = int(value)
    joint, other = _OTHERS[operator]
    return {joint: [one, {key: {other: near}}]}


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
    if operator in LISTS:
        if len({str if isinstance(v, str) else isinstance(v, bool) for v in value}) > 1:
            msg = f"PGVectorStore compares {key!r} with values of one kind: ask for each kind alone"
            raise InvalidInputError(msg)
        # Its lists have values of one type, which is never boolean.
        group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
        parts = [KeyCondition(key, single, each) for each in value]
        return to_postgres(join(group, parts))
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
    if operator in LISTS:
        group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
        return to_milvus(join(group, [KeyCondition(key, single, each) for each in value]))
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
    if operator in ORDERS:
        bounds = models.Range(**{operator[1:]: value})
        return models.Filter(must=[models.FieldCondition(key=path, range=bounds)])

    def equal(each: Any) -> Any:
        if isinstance(each, float):
            return models.FieldCondition(key=path, range=models.Range(gte=each, lte=each))
        return models.FieldCondition(key=path, match=models.MatchValue(value=each))

    given = [equal(each) for each in (value if operator in LISTS else [value])]
    if operator in ("$eq", "$in"):
        return models.Filter(should=given)
    return models.Filter(must_not=given)
