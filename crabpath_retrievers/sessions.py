"""Past sessions as lines of JSON: what was asked, what was answered, how it ended."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.query import Query

_ASKING = ("query", "task_type")
_SAYING = ("outcome", "answer", "used", "correction")
_FIELDS = ("session", *_ASKING, *_SAYING, "time")


class Line(NamedTuple):
    """A line of a file, as it stands there."""

    number: int
    text: bytes

    def name(self, namespace: str) -> str:
        """Tells this line, at this place, replayed for this namespace, from all others."""
        place = f"{namespace}\n{self.number}\n".encode()
        return f"replay-{sha256(place + self.text.strip()).hexdigest()[:32]}"


class Past(NamedTuple):
    """What one line tells.

    Attributes:
        query: What was asked.
        task_type: Type of the task that asked, if it had one.
        said: Fields of the feedback about its answer; None where nobody gave an outcome.
    """

    query: str
    task_type: str | None
    said: dict[str, Any] | None


class Trouble(NamedTuple):
    """A line that taught nothing, and why."""

    line: int
    why: str


def summed(lines: Iterable[Line]) -> Iterator[tuple[Line, str]]:
    """Lines, each with what tells all lines up to it from others."""
    total = sha256()
    for line in lines:
        total.update(line.text.strip() + b"\n")
        yield line, total.hexdigest()


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file that are not blank, with their numbers from 1 on.

    Raises:
        InvalidInputError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield Line(number, text)
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}): give a file of JSON lines"
        raise InvalidInputError(msg) from error


def past_of(line: Line) -> Past:
    """What a line tells.

    Raises:
        InvalidInputError: It cannot be replayed.
    """
    data = _object(line.text)
    query = Query.validated(data.get("query", ""), task_type=data.get("task_type"))
    for name in ("answer", "correction", "session"):
        _require(name, data.get(name), str, int if name == "session" else str)
    _require_time(data.get("time"))
    said = {name: data[name] for name in _SAYING if data.get(name) is not None}
    if "outcome" not in said:
        if {"used", "correction"} & said.keys():
            msg = "it says what was used or right, and no outcome: give one from -1 to 1"
            raise InvalidInputError(msg)
        return Past(query.text, query.task_type, None)
    Feedback("", **said)
    return Past(query.text, query.task_type, said)


def troubles(path: Path) -> Iterator[Trouble]:
    """The lines that cannot be replayed."""
    for line in lines_of(path):
        try:
            past_of(line)
        except InvalidInputError as error:
            yield Trouble(line.number, str(error))


def _object(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"it is no JSON ({error})"
        raise InvalidInputError(msg) from error
    if not isinstance(data, dict):
        msg = 'it is no object: write {"query": …, "outcome": …}'
        raise InvalidInputError(msg)
    unknown = sorted(data.keys() - set(_FIELDS))
    if unknown:
        msg = f"it has a field {unknown[0]!r}: use {', '.join(_FIELDS)}"
        raise InvalidInputError(msg)
    return data


def _require(name: str, value: object, *kinds: type) -> None:
    if value is not None and not isinstance(value, kinds):
        msg = f"{name} must be a text, not {value!r:.100}"
        raise InvalidInputError(msg)


def _require_time(value: object) -> None:
    """Refuse what is no time: seconds since the epoch, or ISO 8601."""
    if value is None:
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value):
        return
    try:
        datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        msg = f"time must be ISO 8601 or seconds since the epoch, not {value!r:.100}"
        raise InvalidInputError(msg) from error
