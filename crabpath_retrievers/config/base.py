"""The base of all settings: frozen, and validated when they are made."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import Self

from crabpath_retrievers.core.text import format_value, to_plain
from crabpath_retrievers.errors import InvalidInputError

_KINDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
_BOUNDS = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}


class ValidatedSettings(BaseModel):
    """Settings of one mechanism: frozen, keyword-only, and valid.

    Numbers are finite and within the range of their field; ``True`` is not a number, ``"5"`` is
    not one either.

    Raises:
        InvalidInputError: A value is outside of its range or of another type, or there is no
            setting of that name. The message is one sentence that says what to pass.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    def __init__(self, /, **values: Any) -> None:
        """Validate the given values; a field that is not given has its default."""
        try:
            super().__init__(**{name: to_plain(value) for name, value in values.items()})
        except ValidationError as error:
            raise InvalidInputError(_explain_refusal(type(self), values, error)) from None

    def replace(self, **changes: Any) -> Self:
        """Copy the settings with some fields changed, validated like new settings.

        Raises:
            InvalidInputError: A changed value cannot be used.
        """
        return type(self)(**{**dict(self), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Value by field name, with mappings as dictionaries."""
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in self}

    def require_order(self, low: str, high: str, *, equal: bool = False) -> Self:
        """Require that field ``low`` is below ``high``, or with ``equal`` at most ``high``."""
        least, greatest = getattr(self, low), getattr(self, high)
        if least > greatest or (least == greatest and not equal):
            order = "not be above" if equal else "be below"
            what = f"{type(self).__name__}.{low} ({least}) must {order} {high} ({greatest})"
            msg = f"{what}: lower the one or raise the other"
            raise InvalidInputError(msg)
        return self

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        """Refuse to change settings that others may hold."""
        kind = type(self).__name__
        msg = f"{kind} cannot be changed: use settings.replace({name}=...), which makes a copy"
        raise InvalidInputError(msg)


def to_tuple(value: Any) -> Any:
    """Convert a list or a set to a tuple; return any other value as it is."""
    return tuple(value) if isinstance(value, (list, set, frozenset)) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(to_tuple)]
"""Several texts."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A number from 0 to 1: a share, a probability, a similarity or weight that is not negative."""
Positive = Annotated[float, Field(gt=0, le=1_000_000_000)]
"""A number above 0, in the unit that the field names."""
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
"""A number of things, at least 1."""
CountOrZero = Annotated[int, Field(ge=0, le=1_000_000_000)]
"""A number of things, perhaps none."""
Signed = Annotated[float, Field(ge=-1, le=1)]
"""A number from -1 to 1: a weight, or a similarity."""
Neighbours = Annotated[int, Field(ge=1, le=10_000)]
"""How many nearest things one search returns."""
Range = tuple[float, float]
"""Least and greatest value, in this order."""

_LIMITS = (-sys.float_info.max, sys.float_info.max)


def complete_mapping(what: str, defaults: Mapping[Any, Any]) -> Callable[[Any], Any]:
    """Make a validator of values by name that fills in the defaults of missing names.

    Args:
        what: What a name denotes, for messages: "metric of health".
    """

    def complete(given: Mapping[Any, Any]) -> Mapping[Any, Any]:
        for name in given:
            if name not in defaults:
                known = ", ".join(map(str, defaults))
                msg = f"there is no {what} {format_value(name)}: use {known}"
                raise InvalidInputError(msg)
        return MappingProxyType({**defaults, **given})

    return complete


def complete_ranges(
    what: str, defaults: Mapping[str, Range], limits: Mapping[str, Range] | None = None
) -> Callable[[Any], Any]:
    """As :func:`complete_mapping`, for ranges that must lie within the limits of their name."""
    complete = complete_mapping(what, defaults)

    def validate(given: Any) -> Mapping[str, Range]:
        if not isinstance(given, Mapping):
            msg = f"ranges must map names to two numbers, not {format_value(given)}"
            raise InvalidInputError(msg)
        pairs: Mapping[str, Any] = complete(given)
        return MappingProxyType(
            {
                name: _to_range(f"the range of {what} {name}", pair, (limits or {}).get(name))
                for name, pair in pairs.items()
            }
        )

    return validate


def _to_range(what: str, value: Any, limits: Range | None) -> Range:
    least, greatest = limits or _LIMITS
    with suppress(TypeError, ValueError):
        low, high = value
        if least <= low <= high <= greatest:
            return low, high
    within = f" from {least:g} to {greatest:g}" if limits else ""
    msg = f"{what} must be two numbers{within}, the least one first, not {format_value(value)}"
    raise InvalidInputError(msg)


def _explain_refusal(
    kind: type[ValidatedSettings], values: Mapping[str, Any], error: ValidationError
) -> str:
    """Explain the first error of a validation in one sentence."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInputError):
        return str(cause)
    name = str(first["loc"][0])
    field = kind.model_fields.get(name)
    if field is None:
        known = get_close_matches(name, kind.model_fields, n=1) or list(kind.model_fields)
        return f"{kind.__name__} has no setting {format_value(name)}: use {', '.join(known)}"
    expected = describe_values(field)
    return f"{kind.__name__}.{name} must be {expected}, not {format_value(values.get(name))}"


def explain_first_error(error: ValidationError) -> str:
    """Explain the first error of a validation: its place in the data, and what is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    message = first["msg"][:1].lower() + first["msg"][1:]
    return ": ".join([*filter(None, [name_place(first["loc"])]), message])


def name_place(steps: Iterable[str | int]) -> str:
    """Name a place in data by the steps to it: ``questions[3].text``."""
    written = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return "".join(written).removeprefix(".")


def describe_values(field: FieldInfo) -> str:
    """Describe what a field accepts: "a whole number of at least 1 and at most 100"."""
    kinds, optional = _split_optional(field.annotation)
    words = " or ".join(_describe_kind(kind) for kind in kinds) + _describe_bounds(field.metadata)
    return f"{words}, or None" if optional else words


def _split_optional(annotation: Any) -> tuple[Sequence[Any], bool]:
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return kinds, len(kinds) < len(get_args(annotation))
    return [annotation], False


def _describe_kind(kind: Any) -> str:
    arguments = get_args(kind)
    if kind in _KINDS:
        return _KINDS[kind]
    if get_origin(kind) is Annotated:
        bounds = [bound for info in arguments[1:] for bound in getattr(info, "metadata", ())]
        return _describe_kind(arguments[0]) + _describe_bounds(bounds)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(arguments)}"
    if get_origin(kind) is tuple:
        several = arguments[-1] is Ellipsis
        return "a tuple of texts" if several else f"a pair, each {_describe_kind(arguments[0])}"
    if get_origin(kind) in (frozenset, Mapping):
        values = f" to {_describe_kind(arguments[1])}" if get_origin(kind) is Mapping else ""
        return f"a {get_origin(kind).__name__.lower()} of {_describe_kind(arguments[0])}{values}"
    return f"{kind.__name__}(...)" if issubclass(kind, BaseModel) else str(kind.__name__)


def _describe_bounds(bounds: Iterable[object]) -> str:
    found = [
        f"{words} {value if isinstance(value, int) else format(value, 'g')}"
        for bound in bounds
        for name, words in _BOUNDS.items()
        if (value := getattr(bound, name, None)) is not None
    ]
    return f" {' and '.join(found)}" if found else ""
