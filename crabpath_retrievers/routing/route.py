"""What a chat model answers when it is asked for a route, however it is phrased."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.utils.json import parse_json_markdown
from pydantic import BaseModel, Field, ValidationError

from crabpath_retrievers.text import storable

_LONGEST_REASON = 200
_EMPTY = {"follow": (), "drop": (), "stop": False, "reason": ""}


class Route(BaseModel):
    """Which of the numbered candidates to read in order to answer the question."""

    follow: list[int] = Field(description="numbers of the candidates worth reading, best first")
    drop: list[int] = Field(description="numbers of the candidates that would mislead")
    stop: bool = Field(description="true when nothing else is worth reading")
    reason: str = Field(description="why, in at most 15 words")


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


def heard(answer: Any, offered: Sequence[int]) -> Heard | None:
    """What an answer says about the numbers that were offered; None when that is nothing.

    Args:
        answer: A message, or the mapping that ``with_structured_output(include_raw=True)`` gives.
        offered: The numbers; all others are passed over.
    """
    route = _route(answer)
    if route is None:
        return None
    follow = tuple(n for n in dict.fromkeys(route.follow) if n in offered)
    drop = frozenset(n for n in route.drop if n in offered and n not in follow)
    if not (follow or drop or route.stop):
        return None
    return Heard(
        follow, drop, route.stop, " ".join(storable(route.reason).split())[:_LONGEST_REASON]
    )


def _route(answer: Any) -> Route | None:
    if isinstance(answer, Mapping):
        if isinstance(answer.get("parsed"), Route):
            return answer["parsed"]  # type: ignore[no-any-return]
        answer = answer.get("raw")
    if isinstance(answer, Route):
        return answer
    if not isinstance(answer, BaseMessage):
        return None
    calls = [call["args"] for call in getattr(answer, "tool_calls", ())]
    return next((r for r in map(_valid, [*calls, _json(answer.text)]) if r is not None), None)


def _json(text: str) -> Any:
    """The object in a text, with prose or a code fence around it; None without one."""
    start, end = text.find("{"), text.rfind("}")
    try:
        return parse_json_markdown(text[start : end + 1] if 0 <= start < end else text)
    except ValueError:
        return None


def _valid(data: Any) -> Route | None:
    if not isinstance(data, Mapping) or not {"follow", "drop", "stop"} & data.keys():
        return None
    try:
        return Route.model_validate({**_EMPTY, **data})
    except ValidationError:
        return None
