"""The language of filters on metadata: how large one may be, what it says, and whether it holds.

A filter is a dictionary as Chroma reads it: ``{"key": value}``, ``{"key": {"$gte": 1, "$lt": 5}}``,
``{"$or": [...]}``. Several keys or operators must all hold. A record without the key satisfies
``$ne``, ``$nin`` and ``$not_contains`` alone. ``$in`` and ``$or`` of nothing never hold, ``$nin``
and ``$and`` of nothing always do. Filters of a store's own kind are handed on as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, TypeAlias

from crabpath_retrievers.core.dates import parse_date
from crabpath_retrievers.core.text import format_value, is_number, to_plain, to_storable
from crabpath_retrievers.errors import InvalidInputError

MOST_CONDITIONS, MOST_VALUES, DEEPEST = 256, 10_000, 16
"""What a filter has at most: conditions, values of all of them together, and nested levels."""

ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
"""Operators that compare numbers."""

LISTS = ("$in", "$nin")
"""Operators with a list of values."""

OF_LISTS = ("$contains", "$not_contains")
"""Operators that only Chroma has: whether a list has a value."""

_GROUPS = ("$and", "$or")
_EQUALITIES = ("$eq", "$ne")
OPERATORS = (*_EQUALITIES, *ORDERS, *LISTS, *_GROUPS)
"""Operators that every store has."""

_MANY = (list, tuple, set, frozenset)
_MOST_WHOLE = 2**63  # whole numbers of databases have 64 bits
_NUMBER_NEEDED = "finite number of at most 64 bits"
_VALUES_NEEDED = "a list of texts, booleans or finite numbers of at most 64 bits"
_VALUE_NEEDED = (
    f"a text, a boolean or a {_NUMBER_NEEDED}, and None is none of them; of several values use $in"
)


class KeyCondition(NamedTuple):
    """One condition on one key; the value of ``$in`` and ``$nin`` is a list, never empty."""

    key: str
    operator: str
    value: Any


class Group(NamedTuple):
    """Conditions of which all (``$and``) or one (``$or``) must hold; empty ones stand alone."""

    operator: str
    parts: "tuple[Condition, ...]"


Condition: TypeAlias = KeyCondition | Group
EVERYTHING, NOTHING = Group("$and", ()), Group("$or", ())


def require_bounded(condition: object) -> None:
    """Refuse a filter larger than stores take; of functions and objects nothing is known."""
    waiting: list[tuple[Any, int]] = [(condition, 1)] if isinstance(condition, Mapping) else []
    conditions = values = 0
    while waiting:
        part, depth = waiting.pop()
        entries = [*part.values()] if isinstance(part, Mapping) else [part]
        conditions += not entries
        for entry in map(to_plain, entries):
            items = entry if isinstance(entry, _MANY) else [entry]
            nested = [item for item in items if isinstance(item, (Mapping, *_MANY))]
            conditions += not nested
            values += len(items) - len(nested)
            waiting += [(item, depth + 1) for item in nested]
        for count, most, what in (
            (conditions + len(waiting), MOST_CONDITIONS, "conditions"),
            (values, MOST_VALUES, "values"),
            (depth, DEEPEST, "nested levels"),
        ):
            if count > most:
                msg = f"a filter has at most {most:,} {what}, and this one more: ask in several"
                raise InvalidInputError(msg)


def list_ordered_keys(condition: object) -> list[str]:
    """Keys that a filter compares as larger or smaller; empty for a non-dictionary."""
    keys = []
    for key, value in condition.items() if isinstance(condition, Mapping) else ():
        if key in _GROUPS:
            keys += [found for part in value for found in list_ordered_keys(part)]
        elif isinstance(value, Mapping) and not ORDERS.keys().isdisjoint(value):
            keys.append(key)
    return keys


def drop_orders(condition: Mapping[str, Any]) -> dict[str, Any] | None:
    """Drop comparisons by size from a filter, as if all held; None if nothing is left."""
    kept: dict[str, Any] = {}
    for key, value in condition.items():
        if key in _GROUPS:
            parts = [drop_orders(part) for part in value]
            rest = [part for part in parts if part]
            if rest == parts or (rest and key == "$and"):
                kept[key] = rest
        elif not isinstance(value, Mapping):
            kept[key] = value
        elif others := {sign: given for sign, given in value.items() if sign not in ORDERS}:
            kept[key] = others
    return kept or None


def require_numbers(
    condition: object, records: Sequence[Mapping[str, Any]], *, only_dates: bool
) -> None:
    """Refuse to compare a key by size where metadata have texts under it.

    Args:
        condition: The filter.
        records: Metadata of documents without regard to comparisons by size.
        only_dates: Whether only dates as texts are refused.
    """
    for key in list_ordered_keys(condition):
        values = [metadata.get(key) for metadata in records]
        texts = [value for value in values if isinstance(value, str)]
        day = next(filter(None, map(parse_date, texts)), None)
        if (day or (texts and not only_dates)) and not any(map(is_number, values)):
            number = f"its day beside it as a number, {{'day': {day:%Y%m%d}}}" if day else "numbers"
            msg = (
                f"the filter compares {key!r} with a number, and documents have texts there: "
                f"keep {number}, and filter by it"
            )
            raise InvalidInputError(msg)


def parse_filter(condition: Mapping[str, Any], store: str, more: Sequence[str] = ()) -> Condition:
    """The condition that a dictionary describes: ``EVERYTHING``, ``NOTHING``, or without these.

    Args:
        condition: The dictionary, not empty.
        store: Name of the store, for messages.
        more: Operators that the store has besides, of :data:`OF_LISTS`.

    Raises:
        InvalidInputError: It is none of the language.
    """
    parts = [p for key, value in condition.items() for p in _parse_entry(key, value, store, more)]
    if not condition:
        msg = f"the filter for {store} has an empty condition: leave it out"
        raise InvalidInputError(msg)
    return join("$and", parts)


def _parse_entry(key: object, value: Any, store: str, more: Sequence[str]) -> list[Condition]:
    if not isinstance(key, str):
        msg = f"the filter for {store} has the key {format_value(key)}: keys are texts"
        raise InvalidInputError(msg)
    if key in _GROUPS:
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, Mapping) for v in value):
            msg = f"{key} in the filter for {store} needs a list of conditions"
            raise InvalidInputError(msg)
        return [join(key, [parse_filter(each, store, more) for each in value])]
    if key.startswith("$"):
        raise _refuse_operator(key, store)
    name = to_storable(key)
    if not isinstance(value, Mapping):
        return [_parse_comparison(name, "$eq", value, store, more)]
    if not value:
        msg = f"the filter for {store} has no condition on {key!r}: leave it out"
        raise InvalidInputError(msg)
    return [_parse_comparison(name, sign, given, store, more) for sign, given in value.items()]


def _parse_comparison(
    key: str, operator: object, given: Any, store: str, more: Sequence[str]
) -> Condition:
    if operator not in (*_EQUALITIES, *ORDERS, *LISTS, *more):
        raise _refuse_operator(operator, store)
    name, value = str(operator), to_plain(given)
    if name in LISTS:
        value = [_to_scalar(item) for item in value] if isinstance(value, _MANY) else None
        fits, kind = value is not None and None not in value, _VALUES_NEEDED
        if value == []:
            return NOTHING if name == "$in" else EVERYTHING
    else:
        value, kind = _to_scalar(value), _VALUE_NEEDED
        fits = value is not None
        if name in ORDERS:
            fits = fits and not isinstance(value, (str, bool))
            kind = (
                f"a {_NUMBER_NEEDED}, for a date the one of its day, such as 20240131, kept apart"
            )
    if not fits:
        msg = f"{name} on {key!r} in the filter for {store} needs {kind}, not {format_value(given)}"
        raise InvalidInputError(msg)
    return KeyCondition(key, name, value)


def _to_scalar(given: Any) -> str | float | None:
    """Convert a value to its stored form; None if no store compares it."""
    value = to_plain(given)
    if isinstance(value, str):
        return to_storable(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None  # None for NaN, too
    return value if isinstance(value, int) and -_MOST_WHOLE <= value < _MOST_WHOLE else None


def _refuse_operator(operator: object, store: str) -> InvalidInputError:
    shown = format_value(operator)
    return InvalidInputError(
        f"{store} cannot filter with {shown}: use one of {', '.join(OPERATORS)}"
    )


def join(operator: str, parts: Sequence[Condition]) -> Condition:
    """All (``$and``) or one (``$or``) of some conditions, without those that change nothing."""
    nothing, decisive = (EVERYTHING, NOTHING) if operator == "$and" else (NOTHING, EVERYTHING)
    if decisive in parts:
        return decisive
    kept = tuple(part for part in parts if part != nothing)
    return kept[0] if len(kept) == 1 else Group(operator, kept)


def group_by_kind(values: Sequence[Any]) -> list[list[Any]]:
    """The values of a list by type, and fractions by themselves."""
    kinds: dict[tuple[type, bool], list[Any]] = {}
    for value in values:
        kinds.setdefault((type(value), is_fraction(value)), []).append(value)
    return list(kinds.values())


def is_fraction(value: object) -> bool:
    """Whether a value is no whole number, but a number."""
    return isinstance(value, float) and not value.is_integer()


def make_test(condition: Condition) -> Callable[[Mapping[str, Any]], bool]:
    """Make the test of a condition on metadata; texts, numbers and booleans never equal."""
    if isinstance(condition, Group):
        tests = [make_test(part) for part in condition.parts]
        decide = all if condition.operator == "$and" else any
        return lambda metadata: decide(test(metadata) for test in tests)
    key, operator, value = condition
    if operator in ORDERS:
        compare = ORDERS[operator]
        return lambda metadata: is_number(own := metadata.get(key)) and compare(own, value)
    if operator in OF_LISTS:
        wanted, is_positive = _identify(value), operator == "$contains"
        return lambda metadata: (
            (isinstance(own := metadata.get(key), list) and wanted in map(_identify, own))
            == is_positive
        )
    allowed = frozenset(map(_identify, value if operator in LISTS else [value]))
    is_positive = operator in ("$eq", "$in")
    return lambda metadata: (_identify(metadata.get(key)) in allowed) == is_positive


def _identify(value: object) -> tuple[bool, object]:
    """A value that equals those of the same kind: True is no 1, and lists are no values."""
    return isinstance(value, bool), value if isinstance(value, (str, int, float)) else None
