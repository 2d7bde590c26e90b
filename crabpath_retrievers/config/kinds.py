"""Whether the values of a group of settings are of the kind that the group declares."""

from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

_NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}


def require_kinds(group: Any) -> None:
    """Refuse a flag, number or text that is none; what is more than that is the group's matter.

    Raises:
        InvalidInputError: A value is of another kind.
    """
    for name, kind, optional in _kinds(type(group)):  # type: ignore[arg-type]  # classes are hashable
        value = getattr(group, name)
        allowed = (int, float) if kind is float else kind
        odd_flag = isinstance(value, bool) and kind is not bool
        if (odd_flag or not isinstance(value, allowed)) and not (optional and value is None):
            msg = f"{name} must be {_NAMES[kind]}, not {shown(value)}"
            raise InvalidInputError(msg)


@cache
def _kinds(group: type[Any]) -> tuple[tuple[str, type[Any], bool], ...]:
    """Names of the fields that hold one plain value, with its kind and whether it may be None."""
    hints, found = get_type_hints(group), []
    for field in fields(group):
        hint = hints[field.name]
        kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
        plain = [kind for kind in kinds if kind in _NAMES]
        if len(plain) == 1 and set(kinds) <= {*plain, NoneType}:
            found.append((field.name, plain[0], NoneType in kinds))
    return tuple(found)
