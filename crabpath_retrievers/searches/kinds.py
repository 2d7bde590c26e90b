"""Validation of search arguments: edge types by name, counts and numbers."""

import math
import sys
from collections.abc import Iterable, Mapping

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import TYPED_KINDS, EdgeKind
from crabpath_retrievers.query import listed
from crabpath_retrievers.text import format_value

EDGE_KINDS_BY_NAME: Mapping[str, EdgeKind] = {
    kind.label: kind for kind in EdgeKind if kind is not EdgeKind.STOP
}
"""Edge kinds that can be searched, by name."""

TYPED_KINDS_BY_NAME: Mapping[str, EdgeKind] = {kind.label: kind for kind in TYPED_KINDS}
"""Edge kinds learned from outcomes, which a user may set, by name."""

_MAX_COUNT = 10_000
_MAX_FLOAT = sys.float_info.max  # larger whole numbers have no float


def parse_edge_kind(name: object, known: Mapping[str, EdgeKind] = EDGE_KINDS_BY_NAME) -> EdgeKind:
    """Return the edge kind of a name.

    Raises:
        InvalidInputError: The name is unknown; none is guessed.
    """
    if not isinstance(name, str) or name not in known:
        msg = f"unknown edge type {format_value(name)}: use one of {', '.join(known)}"
        raise InvalidInputError(msg)
    return known[name]


def parse_edge_kinds(names: str | Iterable[str] | None) -> tuple[EdgeKind, ...]:
    """Return the edge kinds of one or several names; None is all of them.

    Raises:
        InvalidInputError: An unknown name, or no name at all.
    """
    if names is None:
        return tuple(EDGE_KINDS_BY_NAME.values())
    if not isinstance(names, Iterable) or isinstance(names, (bytes, Mapping)):
        parse_edge_kind(names)
    values = [names] if isinstance(names, str) else listed("edge types", names)
    if not values:
        msg = f"give at least one edge type of {', '.join(EDGE_KINDS_BY_NAME)}"
        raise InvalidInputError(msg)
    return tuple(dict.fromkeys(parse_edge_kind(name) for name in values))


def validate_count(name: str, value: object) -> int:
    """Validate a whole number from 1 to 10,000.

    Raises:
        InvalidInputError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_COUNT:
        msg = f"{name} must be a whole number from 1 to {_MAX_COUNT}, not {format_value(value)}"
        raise InvalidInputError(msg)
    return value


def validate_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf
) -> float:
    """Validate a finite number within bounds.

    Raises:
        InvalidInputError: It is something else.
    """
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not known or not -_MAX_FLOAT <= value <= _MAX_FLOAT or not least <= value <= most:  # type: ignore[operator]
        within = "" if math.isinf(least) else f" from {least:g} to {most:g}"
        msg = f"{name} must be a finite number{within}, not {format_value(value)}"
        raise InvalidInputError(msg)
    return float(value)  # type: ignore[arg-type]
