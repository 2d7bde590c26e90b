"""The base of all settings: frozen, and validated when they are made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import Self

from crabpath_retrievers.core.text import format_value
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
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidInputError(_explain_refusal(type(self), values, error)) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated like new settings.

        Raises:
            InvalidInputError: A changed value cannot be used.
        """
        return type(self)(**{**dict(self), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Value by field name, with mappings as dictionaries."""
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in self}

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        """Refuse to change settings that others may hold.

        Raises:
            InvalidInputError: Always.
        """
        kind = type(self).__name__
        msg = f"{kind} cannot be changed: use settings.replace({name}=...), which makes a copy"
        raise InvalidInputError(msg)


def to_tuple(value: Any) -> Any:
    """A list or a set as a tuple; everything else as it is."""
    return tuple(value) if isinstance(value, (list, set, frozenset)) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(to_tuple)]
"""Several texts."""


def complete_ranges(
    what: str, defaults: Mapping[str, tuple[float, float]], check: Callable[[str, Any], Any]
) -> Callable[[Any], Any]:
    """A validator of ranges by name, which fills in those that are not given.

    Args:
        what: What a name denotes, for messages: "metric of health".
        defaults: The range of every name.
        check: Returns the range of a name as ``(least, greatest)``, or raises InvalidInputError.
    """

    def complete(given: Any) -> Mapping[str, tuple[float, float]]:
        if not isinstance(given, Mapping):
            msg = f"ranges must map names to two numbers, not {format_value(given)}"
            raise InvalidInputError(msg)
        for name in given:
            if name not in defaults:
                msg = f"there is no {what} {format_value(name)}: use {', '.join(defaults)}"
                raise InvalidInputError(msg)
        checked = {name: check(name, value) for name, value in given.items()}
        return MappingProxyType({**defaults, **checked})

    return complete


def _explain_refusal(
    kind: type[ValidatedSettings], values: Mapping[str, Any], error: ValidationError
) -> str:
    """One sentence about the first error."""
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


def describe_values(field: FieldInfo) -> str:
    """What a field accepts, in words: "a whole number of at least 1 and at most 100"."""
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
