"""Replay files: lines or rows with the query, answer and feedback of past turns."""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from crabpath_retrievers.core.feedback import DOCUMENT_FIELDS, Feedback
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.outcomes import parse_outcome
from crabpath_retrievers.parts.files import open_replacement
from crabpath_retrievers.parts.operation.transfer.log_formats import (
    QUESTION_FIELDS,
    parse_run,
    read_table,
)

_QUERY_FIELDS = (*QUESTION_FIELDS, "task_type")
_FEEDBACK_FIELDS = ("outcome", "answer", *DOCUMENT_FIELDS, "correction")
_ALL_FIELDS = ("session", *_QUERY_FIELDS, *_FEEDBACK_FIELDS, "time")


class ReplayLine(NamedTuple):
    """A line of a replay file.

    Attributes:
        number: Its number, from 1.
        text: Its bytes; of a row of a table the JSON object that says the same.
        why: Why it cannot be read; empty where it can.
    """

    number: int
    text: bytes
    why: str = ""

    def name(self, namespace: str) -> str:
        """Return an id unique to this line, its number and the namespace of the replay."""
        place = f"{namespace}\n{self.number}\n".encode()
        return f"replay-{sha256(place + self.text.strip()).hexdigest()[:32]}"


class ReplayRecord(NamedTuple):
    """The content of one line.

    Attributes:
        query: Text of the query.
        task_type: Type of the task, if it had one.
        said: Fields of the feedback; None where nothing was said.
    """

    query: str
    task_type: str | None
    said: dict[str, Any] | None


class LineError(NamedTuple):
    """A line that cannot be replayed, and why."""

    line: int
    why: str


def hash_lines(lines: Iterable[ReplayLine]) -> Iterator[tuple[ReplayLine, str]]:
    """Yield each line with the SHA-256 of all lines up to it."""
    total = sha256()
    for line in lines:
        total.update(line.text.strip() + b"\n")
        yield line, total.hexdigest()


def read_lines(path: Path) -> Iterator[ReplayLine]:
    """Yield the lines of a file that are not blank; of a file named ``.csv`` the rows.

    Raises:
        InvalidInputError: The file cannot be read, or is a table without questions.
    """
    try:
        if path.suffix.lower() == ".csv":
            yield from (ReplayLine(*row) for row in read_table(path, _ALL_FIELDS))
            return
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield ReplayLine(number, text)
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}): give a file of JSON lines or CSV"
        raise InvalidInputError(msg) from error


def parse_line(line: ReplayLine) -> ReplayRecord:
    """Parse a line.

    What is relevant was judged: without an outcome it counts as a success.

    Raises:
        InvalidInputError: The line cannot be replayed.
    """
    if line.why:
        raise InvalidInputError(line.why)
    data = _parse_object(line.text)
    asked = next((data[name] for name in QUESTION_FIELDS if name in data), "")
    query = Query.from_options(asked, task_type=data.get("task_type"))
    for name in ("answer", "correction"):
        if not isinstance(data.get(name), str | None):
            msg = f"{name} must be a text, not {data[name]!r:.100}"
            raise InvalidInputError(msg)
    said = {name: data[name] for name in _FEEDBACK_FIELDS if data.get(name) is not None}
    if "outcome" in said:
        said["outcome"] = parse_outcome(said["outcome"])
    elif said.get("relevant"):
        said["outcome"] = 1.0
    else:
        if alone := [name for name in said if name != "answer"]:
            msg = f"it has {alone[0]}, but no outcome: give an outcome from -1 to 1"
            raise InvalidInputError(msg)
        return ReplayRecord(query.text, query.task_type, None)
    Feedback("", **said)
    return ReplayRecord(query.text, query.task_type, said)


def find_bad_lines(path: Path) -> Iterator[LineError]:
    """Yield the lines that cannot be replayed."""
    for line in read_lines(path):
        try:
            parse_line(line)
        except InvalidInputError as error:
            yield LineError(line.number, str(error))


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"it is not JSON ({error})"
        raise InvalidInputError(msg) from error
    if isinstance(data, dict) and "inputs" in data:
        return parse_run(data)
    if not isinstance(data, dict):
        msg = 'it is not a JSON object: write {"query": …, "outcome": …}'
        raise InvalidInputError(msg)
    unknown = sorted(data.keys() - set(_ALL_FIELDS))
    if unknown:
        msg = f"it has an unknown field {unknown[0]!r}: use {', '.join(_ALL_FIELDS)}"
        raise InvalidInputError(msg)
    return data


class ReplayCheckpoint(NamedTuple):
    """Progress of a replay.

    Attributes:
        line: Number of the last replayed line; 0 for none.
        digest: SHA-256 of all lines up to it.
        name: Id of the last line whose query was asked; empty for none.
    """

    line: int = 0
    digest: str = ""
    name: str = ""

    def write(self, path: Path) -> None:
        """Write the checkpoint atomically to a private file.

        Raises:
            InvalidInputError: The file cannot be written.
        """
        with open_replacement(path, f"the checkpoint {path}") as file:
            file.write(json.dumps(self._asdict()).encode())

    @classmethod
    def load(cls, path: Path) -> "ReplayCheckpoint":
        """Load a checkpoint; an empty one if the file does not exist.

        Raises:
            InvalidInputError: The file is not a checkpoint.
        """
        try:
            if not path.exists():
                return cls()
            found = cls(**json.loads(path.read_bytes()))
            if not isinstance(found.line, int):
                raise TypeError  # noqa: TRY301  handled like other invalid content
        except (OSError, ValueError, TypeError) as error:
            msg = f"{path} is not a checkpoint of a replay: give another file, or delete it"
            raise InvalidInputError(msg) from error
        return found
