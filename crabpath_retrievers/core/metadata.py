"""Metadata of documents: filters on them, and the dates that they state.

A filter is a dictionary as Chroma reads it: ``{"key": value}``, ``{"key": {"$gte": 1, "$lt": 5}}``,
``{"$or": [...]}``. Several keys or operators must all hold. A record without the key satisfies
``$ne``, ``$nin`` and ``$not_contains`` alone. ``$in`` and ``$or`` of nothing never hold, ``$nin``
and ``$and`` of nothing always do. Filters of a store's own kind are handed on as they are.

A date is a moment; what may mean several days is none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, TypeAlias

from crabpath_retrievers.core.text import format_value, is_number, normalise, to_plain, to_storable
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
    """Conditions of which all (``$and``) or one (``$or``) must hold; empty ones are not nested."""

    operator: str
    parts: "tuple[Condition, ...]"


Condition: TypeAlias = KeyCondition | Group
EVERYTHING, NOTHING = Group("$and", ()), Group("$or", ())


def require_bounded(condition: object) -> None:
    """Refuse a filter with too many conditions, values or levels; only mappings are checked."""
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
    """List the keys that a filter compares as larger or smaller; none for a non-dictionary."""
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
    """Refuse a filter that compares by size what documents have as texts.

    ``records`` are metadata that were found without the comparisons by size. If ``only_dates``,
    texts are only refused if they are dates.
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
    """Parse a dictionary to a condition: ``EVERYTHING``, ``NOTHING``, or one without either.

    Args:
        condition: The dictionary, not empty.
        more: Operators that the store has besides, of :data:`OF_LISTS`.
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
    """Join the conditions ``parts`` by ``$and`` or ``$or``, without those that change nothing.

    A part that decides alone is the result.
    """
    nothing, decisive = (EVERYTHING, NOTHING) if operator == "$and" else (NOTHING, EVERYTHING)
    if decisive in parts:
        return decisive
    kept = tuple(part for part in parts if part != nothing)
    return kept[0] if len(kept) == 1 else Group(operator, kept)


def group_by_kind(values: Sequence[Any]) -> list[list[Any]]:
    """Group values by type; numbers that are not whole are a group of their own."""
    kinds: dict[tuple[type, bool], list[Any]] = {}
    for value in values:
        kinds.setdefault((type(value), is_fraction(value)), []).append(value)
    return list(kinds.values())


def is_fraction(value: object) -> bool:
    """Whether a value is a number that is not whole."""
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


def list_keys(condition: Condition) -> set[str]:
    """Collect the keys that a condition reads."""
    if isinstance(condition, Group):
        return set[str]().union(*map(list_keys, condition.parts))
    return {condition.key}


def _identify(value: object) -> tuple[bool, object]:
    """Make a key to compare values by: True differs from 1, and lists count as no value."""
    return isinstance(value, bool), value if isinstance(value, (str, int, float)) else None


_LATEST = 253_402_300_800.0  # seconds from 1970 to the year 10000; larger numbers are milliseconds
_LONGEST = 64  # characters of a date
_DAYS = range(19_000_101, 29_991_232)  # whole numbers that are written days, such as 20240531
_PARTIAL = re.compile(r"(\d{4})(?:[-/.](\d{1,2})(?:[-/.](\d{1,2}))?)?Z?")
_GERMAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_SLASHED = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4})")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_DAY_FORMS = ("%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%Y%m%d")
_MONTH_FORMS = ("%B %Y", "%b %Y")
_MOMENT = timedelta(microseconds=1)
# "31. Mai 2024", "1er mai 2024", "31 de mayo de 2024", "mai 2024"; normalised.
_NAMED = re.compile(
    r"(?:(\d{1,2})(?:\.|er|o)? ?)?(?:de |d['\u2019])?"
    r"([^\W\d_]{3,12})\.?,? (?:del? )?(\d{4})(?: ?г\.?)?"
)
# How the names of January to December begin in European languages; the longest beginning counts.
_MONTHS = (
    "jan gen ene ian sty leden ledna tam oca янв ιαν",
    "feb fev lut unor hel sub фев φεβ",
    "mar maa brez мар μαρ",
    "apr avr abr kwi dub huh nis апр απρ",
    "may mai maj mag mei kvet tou маи мая μαι",
    "jun juin giu cze cerven cervna kes haz iun июн ιουν",
    "jul juil lug lip cervenec cervence hei tem iul июл ιουλ",
    "aug aou ago sie srp elo agu авг αυγ",
    "sep set sze wrz zari syy eyl сен σεπ",
    "oct okt ott out paz rij lok eki окт οκτ",
    "nov listopad marras kas ноя νοε",
    "dec dez des dic gru prosin jou ara дек δεκ",
)
_MONTH_OF = {begin: n for n, names in enumerate(_MONTHS, 1) for begin in names.split()}


def parse_date(value: object, *, last: bool = False) -> datetime | None:
    """Parse the moment that a metadata value states; None if it states none, or is ambiguous.

    Args:
        value: A date; seconds or milliseconds since 1970; a number such as 20240531; or a text: ISO
            8601 or a part of it, an RFC 2822 date, "31.05.2024", "31 May 2024", "May 31st, 2024",
            "31 de mayo de 2024", "31/05/2024", "31-05-2024". "05/06/2024" is in doubt. A time
            without a zone is in UTC.
        last: Take the last moment of a day, month or year; otherwise it is the first.
    """
    value = to_plain(value)
    try:
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        if isinstance(value, date):
            return _bound(value.year, value.month, value.day, last=last)
        if is_number(value):
            seconds = float(value)  # type: ignore[arg-type]
            if 0 <= seconds <= 9999 or int(seconds) in _DAYS:  # noqa: PLR2004  a year or a day
                return _parse_text(str(int(seconds)), last=last)
            return datetime.fromtimestamp(
                seconds / 1000 if abs(seconds) > _LATEST else seconds, timezone.utc
            )
        if isinstance(value, str) and len(value) <= _LONGEST:
            return _parse_text(" ".join(value.split()), last=last)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _parse_text(text: str, *, last: bool) -> datetime | None:
    if day := _parse_day(text):
        return _bound(*day, last=last)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, IndexError):
            return parse_date(read(re.sub(r"Z$", "+00:00", text)))
    return None


def _parse_day(text: str) -> tuple[int, int | None, int | None] | None:
    """Parse year, month and day of a text without a time; None if there is no date, or in doubt.

    Month and day are None if the text does not name them.
    """
    if found := _PARTIAL.fullmatch(text):
        year, month, day = (int(part) if part else None for part in found.groups())
        return (year, month, day) if year else None
    if found := _GERMAN.fullmatch(text):
        return int(found[3]), int(found[2]), int(found[1])
    if found := _SLASHED.fullmatch(text):
        month, day = sorted((int(found[1]), int(found[3])))
        in_doubt = day <= 12 and month != day  # noqa: PLR2004  months of a year
        return None if in_doubt else (int(found[4]), month, day)
    for form in (*_DAY_FORMS, *_MONTH_FORMS):
        with suppress(ValueError):
            written = datetime.strptime(_ORDINAL.sub("", text), form)  # noqa: DTZ007  a day
            return written.year, written.month, written.day if form in _DAY_FORMS else None
    return _parse_named(normalise(text))


def _parse_named(text: str) -> tuple[int, int, int | None] | None:
    """Parse year, month and day of a normalised text with the name of a month in any language.

    None if there is none; the day is None if the text does not name it.
    """
    if found := _NAMED.fullmatch(text):
        for size in range(len(found[2]), 2, -1):
            if month := _MONTH_OF.get(found[2][:size]):
                return int(found[3]), month, int(found[1]) if found[1] else None
    return None


def _bound(year: int, month: int | None, day: int | None, *, last: bool) -> datetime:
    """Return the first moment of a year, a month or a day; if ``last``, the last one.

    ``month`` and ``day`` None take the whole year or month.
    """
    begin = datetime(year, month or 1, day or 1, tzinfo=timezone.utc)
    if not last:
        return begin
    if day:
        return begin + timedelta(days=1) - _MOMENT
    next_month = datetime(
        year + (month or 12) // 12, (month or 12) % 12 + 1, 1, tzinfo=timezone.utc
    )
    return next_month - _MOMENT
