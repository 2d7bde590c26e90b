"""What a chat model answers when it is asked for a route, however it is phrased."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Annotated, Any

from langchain_core.messages import BaseMessage
from langchain_core.utils.json import parse_partial_json
from pydantic import BaseModel, BeforeValidator, ValidationError

from crabpath_retrievers.text import storable

_LONGEST_REASON = 200
_LONGEST = 8_000  # characters at the end of an answer that are read; 180 tokens have about 700
_CUT_OFF = 2_000  # of an object that does not end: reading it takes the square of its length
_NUMBER_OF_NONE = 0  # offered numbers begin with 1
_DECODER = JSONDecoder(strict=False)
_EMPTY = {"follow": (), "drop": (), "stop": False, "reason": ""}


def _numbers(given: Any) -> list[int]:
    """Numbers in whatever stands for a list of them; what is none is no candidate's number."""
    return [_number(item) for item in (given if isinstance(given, list) else [given])]


def _number(item: Any) -> int:
    if isinstance(item, str) and item.strip().isdecimal():
        return int(item[:_LONGEST_REASON])
    whole = isinstance(item, int) or (isinstance(item, float) and item.is_integer())
    return int(item) if whole and not isinstance(item, bool) else _NUMBER_OF_NONE


_Numbers = Annotated[list[int], BeforeValidator(_numbers)]


class Route(BaseModel):
    """Which of the numbered candidates to read."""

    follow: _Numbers
    drop: _Numbers
    stop: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Heard:
    """The part of an answer that can be followed.

    Attributes:
        follow: Offered numbers to follow, best first, each once.
        drop: Offered numbers that mislead, none of which is followed.
        stop: Whether nothing else that was offered is worth following.
        reason: What the model says about it, on one line.
    """

    follow: tuple[int, ...]
    drop: frozenset[int]
    stop: bool = False
    reason: str = ""


def heard(answer: Any, offered: Sequence[int], most: int) -> Heard | None:
    """What an answer says about the numbers that were offered; None when that is nothing.

    Args:
        answer: A message, or the mapping that ``with_structured_output(include_raw=True)`` gives.
        offered: The numbers; all others are passed over.
        most: How many may be followed; the first ones count.
    """
    route = _route(answer)
    if route is None:
        return None
    follow = tuple([n for n in dict.fromkeys(route.follow) if n in offered][:most])
    drop = frozenset(n for n in route.drop if n in offered and n not in follow)
    nothing = not (follow or drop or route.stop)
    if nothing and (route.follow or route.drop):  # without any number all is left to experience
        return None
    return Heard(
        follow, drop, route.stop, " ".join(storable(route.reason).split())[:_LONGEST_REASON]
    )


def _route(answer: Any) -> Route | None:
    if isinstance(answer, Mapping):
        parsed = answer.get("parsed", answer)
        route = parsed if isinstance(parsed, Route) else _valid(parsed)
        if route is not None:
            return route
        answer = answer.get("raw")
    if isinstance(answer, Route):
        return answer
    if not isinstance(answer, BaseMessage):
        return None
    calls = [call["args"] for call in getattr(answer, "tool_calls", ())]
    said = (*calls, *_objects(str(answer.text)[-_LONGEST:]))
    return next((r for r in map(_valid, said) if r is not None), None)


def _objects(text: str) -> Iterator[Any]:
    """JSON objects in a text, with prose or a code fence around them: what stands last comes first.

    At the end comes what can be read of an object that was cut off.
    """
    start = place = text.find("{")
    whole = []
    while place >= 0:
        try:
            found, end = _DECODER.raw_decode(text, place)
            whole.append(found)
        except (ValueError, RecursionError):
            end = place + 1
        place = text.find("{", end)
    yield from reversed(whole)
    if start >= 0:
        try:
            yield parse_partial_json(text[start : start + _CUT_OFF])
        except (ValueError, RecursionError):
            return


def _valid(data: Any) -> Route | None:
    if not isinstance(data, Mapping) or not {"follow", "drop", "stop"} & data.keys():
        return None
    said = {name: value for name, value in data.items() if value is not None}
    try:
        return Route.model_validate({**_EMPTY, **said})
    except ValidationError:
        return None
