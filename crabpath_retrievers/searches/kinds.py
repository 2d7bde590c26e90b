"""Validation of search arguments: edge types by name, counts and numbers."""

import math
import sys
from collections.abc import Iterable, Mapping

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import TYPED_KINDS, EdgeKind
from crabpath_retrievers.query import listed
from crabpath_retrievers.text import shown

EDGE_TYPES: Mapping[str, EdgeKind] = {
    kind.label: kind for kind in EdgeKind if kind is not EdgeKind.STOP
}
"""Edge kinds that can be searched, by name."""

LEARNED_TYPES: Mapping[str, EdgeKind] = {kind.label: kind for kind in TYPED_KINDS}
"""Edge kinds learned from outcomes, which a user may set, by name."""

_MAX_COUNT = 10_000
_MAX_FLOAT = sys.float_info.max  # larger whole numbers have no float


def kind_of(name: object, known: Mapping[str, EdgeKind] = EDGE_TYPES) -> EdgeKind:
    """Return the edge kind of a name.

    Raises:
        InvalidInputError: The name is unknown; none is guessed.
    """
    if not isinstance(name, str) or name not in known:
        msg = f"unknown edge type {shown(name)}: use one of {', '.join(known)}"
        raise InvalidInputError(msg)
    return known[name]


def kinds_of(names: str | Iterable[str] | None) -> tuple[EdgeKind, ...]:
    """Return the edge kinds of one or several names; None is all of them.

    Raises:
        InvalidInputError: An unknown name, or no name at all.
    """
    if names is None:
        return tuple(EDGE_TYPES.values())
    if not isinstance(names, Iterable) or isinstance(names, (bytes, Mapping)):
        kind_of(names)
    values = [names] if isinstance(names, str) else listed("edge types", names)
    if not values:
        msg = f"give at least one edge type of {', '.join(EDGE_TYPES)}"
        raise InvalidInputError(msg)
    return tuple(dict.fromkeys(kind_of(name) for name in values))


def whole(name: str, value: object) -> int:
    """Validate a whole number from 1 to 10,000.

    Raises:
        InvalidInputError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_COUNT:
        msg = f"{name} must be a whole number from 1 to {_MAX_COUNT}, not {shown(value)}"
        raise InvalidInputError(msg)
    return value


def number(name: str, value: object, least: float = -math.inf, most: float = math.inf) -> float:
    """Validate a finite number within bounds.

    Raises:
        InvalidInputError: It is something else.
    """
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not known or not -_MAX_FLOAT <= value <= _MAX_FLOAT or not least <= value <= most:  # type: ignore[operator]
        within = "" if math.isinf(least) else f" from {least:g} to {most:g}"
        msg = f"{name} must be a finite number{within}, not {shown(value)}"
        raise InvalidInputError(msg)
    return float(value)  # type: ignore[arg-type]
