"""Answers: records of the package, and models where there is no such record.

The model of a record is made from its fields, with what its docstring says of them.
"""

import re
from functools import cache
from inspect import getdoc
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema

from crabpath_retrievers.parts.operation.lift import Lift
from crabpath_retrievers.parts.operation.snapshots import Snapshot
from crabpath_retrievers.parts.typed_graph import NodeInfo, WeightMove
from crabpath_retrievers.parts.typed_graph.follow import WeighedEdge

TierName = Literal["reflex", "habitual", "dormant", "inhibitory"]
AuthorityName = Literal["overlay", "canonical", "constitutional"]

_SENT: dict[type, dict[str, Any]] = {  # fields with another type or name, or None: not sent
    Lift: {"labels": Literal["relevant", "drafted"], "has_lost": None},
    NodeInfo: {"authority": AuthorityName},
    Snapshot: {"namespace": None},
    WeighedEdge: {"tier": TierName},
    WeightMove: {"created": Annotated[float, Field(serialization_alias="at")]},
}
_SAID = re.compile(r"^    (\w[\w, ]*): (.+(?:\n {8}.+)*)", re.MULTILINE)
_MARKUP = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`|``(.+?)``", re.DOTALL)


class ApiOutput(BaseModel):
    """An answer."""

    model_config = ConfigDict(
        from_attributes=True, json_schema_serialization_defaults_required=True
    )


class Download(ApiOutput):
    """A file."""

    name: str
    kind: str
    file: Any = Field(exclude=True)


class _SentRecord:
    """Marks a field of a model whose record is sent as an object."""

    @staticmethod
    def __get_pydantic_core_schema__(record: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(find_model(record))


T = TypeVar("T")
Sent = Annotated[T, _SentRecord]
"""A record in the field of a model, as in ``list[Sent[NoteRecord]]``."""


def find_model(answer: type[Any]) -> type[ApiOutput]:
    """Find the model of an answer: the answer itself if it is one, else that of its record."""
    found: Any = answer
    return answer if issubclass(answer, ApiOutput) else _make_model(found)


@cache
def _make_model(record: Any) -> type[ApiOutput]:
    said, changed = _read_docstring(record), _SENT.get(record, {})
    fields: dict[str, Any] = {
        name: (_find_sent(hint), Field(description=said.get(name)))
        for name, hint in {**get_type_hints(record), **changed}.items()
        if hint is not None
    }
    summary = _tidy((record.__doc__ or "").partition("\n")[0])
    return create_model(record.__name__, __base__=ApiOutput, __doc__=summary, **fields)


def dump_answer(answer: Any) -> dict[str, Any]:
    """Convert an answer to JSON-safe data."""
    model = find_model(type(answer))
    return model.model_validate(answer).model_dump(mode="json", by_alias=True)


def _find_sent(hint: Any) -> Any:
    """Replace records in a type hint, which are tuples, so that they are sent as objects."""
    if get_origin(hint) is tuple:
        return tuple[_find_sent(get_args(hint)[0]), ...]  # type: ignore[misc]
    return find_model(hint) if hasattr(hint, "_fields") else hint


def _read_docstring(record: type) -> dict[str, str]:
    """Read descriptions of a record's fields from its docstring."""
    _, _, section = (getdoc(record) or "").partition("Attributes:\n")
    return {
        name: _tidy(text) for names, text in _SAID.findall(section) for name in names.split(", ")
    }


def _tidy(text: str) -> str:
    """Remove markup from a text, and use the words of JSON."""
    return " ".join(_MARKUP.sub(r"\1\2", text).replace("None", "null").split())
