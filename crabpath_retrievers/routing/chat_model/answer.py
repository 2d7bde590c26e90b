"""Parsing the router's answer: structured output, tool calls, or JSON within prose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Annotated, Any

from langchain_core.messages import BaseMessage
from langchain_core.utils.json import parse_partial_json
from pydantic import BaseModel, BeforeValidator, ValidationError

from crabpath_retrievers.core.text import to_storable

_LONGEST_REASON = 200
_MAX_PARSED = 8_000  # characters parsed, from the end of an answer; 180 tokens have about 700
_MAX_PARTIAL = 2_000  # characters of an unfinished object; parsing it takes quadratic time
_NO_NUMBER = 0  # offered numbers begin with 1
_DECODER = JSONDecoder(strict=False)
_EMPTY = {"follow": (), "drop": (), "stop": False, "reason": ""}


def _to_numbers(value: Any) -> list[int]:
    """The integers in a list or a single value; anything else becomes 0, which is not offered."""
    return [_to_number(item) for item in (value if isinstance(value, list) else [value])]


def _to_number(item: Any) -> int:
    if isinstance(item, str) and item.strip().isdecimal():
        return int(item[:_LONGEST_REASON])
    whole = isinstance(item, int) or (isinstance(item, float) and item.is_integer())
    return int(item) if whole and not isinstance(item, bool) else _NO_NUMBER


_Numbers = Annotated[list[int], BeforeValidator(_to_numbers)]


class Route(BaseModel):
    """Numbers of the candidates to read."""

    follow: _Numbers
    drop: _Numbers
    stop: bool
    reason: str


@dataclass(frozen=True, slots=True)
class RouterAnswer:
    """The valid part of an answer.

    Attributes:
        follow: Offered numbers to follow, best first, without duplicates.
        drop: Offered numbers to reject; disjoint from ``follow``.
        stop: Whether nothing else that was offered shall be followed.
        reason: Reason given by the model, on one line.
    """

    follow: tuple[int, ...]
    drop: frozenset[int]
    stop: bool = False
    reason: str = ""


def parse_answer(answer: Any, offered: Sequence[int], limit: int) -> RouterAnswer | None:
    """Parse an answer; None if it says nothing about the offered numbers.

    Args:
        answer: A message, or the mapping that ``with_structured_output(include_raw=True)`` gives.
        offered: The offered numbers; all others are ignored.
        limit: Most numbers to follow; the first ones count.
    """
    route = _find_route(answer)
    if route is None:
        return None
    follow = tuple([n for n in dict.fromkeys(route.follow) if n in offered][:limit])
    drop = frozenset(n for n in route.drop if n in offered and n not in follow)
    nothing = not (follow or drop or route.stop)
    if nothing and (
        route.follow or route.drop
    ):  # an answer without numbers leaves all to the policy
        return None
    return RouterAnswer(
        follow, drop, route.stop, " ".join(to_storable(route.reason).split())[:_LONGEST_REASON]
    )


def _find_route(answer: Any) -> Route | None:
    if isinstance(answer, Mapping):
        parsed = answer.get("parsed", answer)
        route = parsed if isinstance(parsed, Route) else _validate(parsed)
        if route is not None:
            return route
        answer = answer.get("raw")
    if isinstance(answer, Route):
        return answer
    if not isinstance(answer, BaseMessage):
        return None
    calls = [call["args"] for call in getattr(answer, "tool_calls", ())]
    objects = (*calls, *_find_objects(str(answer.text)[-_MAX_PARSED:]))
    return next((r for r in map(_validate, objects) if r is not None), None)


def _find_objects(text: str) -> Iterator[Any]:
    """JSON objects in a text, the last one first, whatever prose or code fence is around them.

    After them comes the readable part of an object that was cut off.
    """
    first = start = text.find("{")
    complete = []
    while start >= 0:
        try:
            value, end = _DECODER.raw_decode(text, start)
            complete.append(value)
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
    yield from reversed(complete)
    if first >= 0:
        try:
            yield parse_partial_json(text[first : first + _MAX_PARTIAL])
        except (ValueError, RecursionError):
            return


def _validate(data: Any) -> Route | None:
    if not isinstance(data, Mapping) or not {"follow", "drop", "stop"} & data.keys():
        return None
    values = {name: value for name, value in data.items() if value is not None}
    try:
        return Route.model_validate({**_EMPTY, **values})
    except ValidationError:
        return None
