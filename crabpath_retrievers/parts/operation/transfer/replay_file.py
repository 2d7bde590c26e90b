"""Replay files: lines, rows or runs with the query, answer and feedback of past turns.

Logs of other tools are read as lines of a replay: CSV tables, and runs exported from LangSmith.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from crabpath_retrievers.config.outcome_policy import OutcomePolicy
from crabpath_retrievers.core.feedback import DOCUMENT_FIELDS, Feedback
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.outcomes import parse_outcome, parse_output
from crabpath_retrievers.parts.files import open_replacement

QUESTION_FIELDS = ("query", "question")
"""Names of the field with the question."""

_DELIMITERS = ",;\t"
_BETWEEN = re.compile(r"[|;\n]")  # documents of one cell
_UNDECODED = re.compile("[\udc80-\udcff]")
_QUESTIONS = (*QUESTION_FIELDS, "input", "prompt", "text")
_HUMAN = {"human", "user"}
_DOCUMENTS = ("document_ids", "documents", "ids", "used")
_TEXTS = ("correction", "text", "answer", "output", "value")


def read_table(path: Path, fields: Sequence[str]) -> Iterator[tuple[int, bytes, str]]:
    """Yield rows of a CSV file: number of the last line, JSON object, why it cannot be read.

    The reason is empty for a row that can be read. The first row names the columns, in small or
    capital letters; columns that are no ``fields`` are left out, and so are empty cells. Cells are
    separated by commas, semicolons or tabs; the documents of one cell by ``|``, ``;`` or line
    breaks.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        header = file.readline()
        delimiter = max(_DELIMITERS, key=header.count)
        names = [name.strip().lower() for name in next(csv.reader([header], delimiter=delimiter))]
        if not {*QUESTION_FIELDS}.intersection(names):
            msg = f"{path} has no column query or question: name the columns in its first row"
            raise InvalidInputError(msg)
        rows = csv.reader(file, delimiter=delimiter, strict=True)
        while True:
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield rows.line_num + 1, b"{}", f"it is not CSV ({error})"
                continue
            if any(cell.strip() for cell in cells):
                given = dict(zip(names, cells, strict=False))
                row = {name: _parse_cell(name, given[name]) for name in fields if given.get(name)}
                why = ""
                if len(cells) != len(names):
                    why = f"it has {len(cells)} cells, and the first row {len(names)}"
                elif _UNDECODED.search("".join(cells)):
                    why = "it is not UTF-8"
                yield rows.line_num + 1, json.dumps(row).encode(), why


def _parse_cell(name: str, cell: str) -> Any:
    if name in DOCUMENT_FIELDS:
        return [part.strip() for part in _BETWEEN.split(cell) if part.strip()]
    if name == "outcome":
        try:
            return float(cell)
        except ValueError:
            return cell
    return cell


def parse_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a run that LangSmith's client exported to fields of a replay line.

    ``feedback`` of the run is a list, oldest first: the last one with a score or a correction
    counts. Without a list, ``feedback_stats`` counts, the means by key. Keys and outcomes are those
    of :class:`OutcomePolicy`. A correction may name the right documents.

    Raises:
        InvalidInputError: The run has no question, or a score that is no number, or is a step of
            another run.
    """
    question = _find_question(run["inputs"])
    if question is None:
        msg = f"its inputs hold no question: name it one of {', '.join(_QUESTIONS)}"
        raise InvalidInputError(msg)
    said = _read_feedback(run, OutcomePolicy())
    if not said and run.get("parent_run_id") is not None:
        msg = "it is a step of another run, without feedback: export root runs"
        raise InvalidInputError(msg)
    answer = parse_output(run.get("outputs")).text
    return {"query": question, **({"answer": answer} if answer else {}), **said}


def _read_feedback(run: Mapping[str, Any], policy: OutcomePolicy) -> dict[str, Any]:
    """Read the feedback about a run as fields of a replay line; empty if none counts.

    ``policy`` says which keys count, and how much.
    """
    listed = run.get("feedback")
    for given in reversed(listed if isinstance(listed, list) else []):
        if isinstance(given, Mapping) and given.get("key") in policy.feedback_keys:
            score, (text, right) = given.get("score"), parse_correction(given.get("correction"))
            if score is not None or text or right:
                return _convert_feedback(score, text, right, policy)
    stats = run.get("feedback_stats")
    known = [stats.get(key) for key in policy.feedback_keys] if isinstance(stats, Mapping) else []
    means = (one.get("avg") for one in known if isinstance(one, Mapping))
    mean = next((one for one in means if one is not None), None)
    return {} if mean is None else {"outcome": policy.langsmith.convert_score(mean)}


def _convert_feedback(
    score: Any, text: str | None, right: Sequence[str], policy: OutcomePolicy
) -> dict[str, Any]:
    said: dict[str, Any] = {"relevant": list(right)} if right else {}
    if score is not None:
        said["outcome"] = policy.langsmith.convert_score(score)
    elif not right:
        said["outcome"] = policy.correction.outcome
    if text and not right and said["outcome"] < 0:
        said["correction"] = text
    return said


def _find_question(inputs: Any) -> str | None:
    """Find the question in the inputs of a run: a field, or the last message of a person.

    None if there is none.
    """
    if isinstance(inputs, str):
        return inputs
    if isinstance(inputs, list):
        return next((text for one in reversed(inputs) if (text := _read_message(one))), None)
    if not isinstance(inputs, Mapping):
        return None
    given = [inputs[name] for name in (*_QUESTIONS, "messages") if inputs.get(name)]
    return next((text for one in given if (text := _find_question(one))), None)


def _read_message(message: Any) -> str | None:
    """Read the text of a person's message; None for any other message."""
    if isinstance(message, list):  # a batch of messages
        return _find_question(message)
    if not isinstance(message, Mapping):
        return None
    inner = message.get("kwargs")
    fields = inner if isinstance(inner, Mapping) else message
    role, text = fields.get("type") or fields.get("role"), fields.get("content")
    return text if role in _HUMAN and isinstance(text, str) else None


def parse_correction(correction: object) -> tuple[str | None, tuple[str, ...]]:
    """Parse a correction to the right answer in words, and the ids of the right documents.

    The answer is None, and the ids are empty, if the correction has none.
    """
    if isinstance(correction, str):
        return correction.strip() or None, ()
    if not isinstance(correction, Mapping):
        return None, ()
    texts = (correction.get(name) for name in _TEXTS)
    text = next((t.strip() for t in texts if isinstance(t, str) and t.strip()), None)
    named = next((correction[name] for name in _DOCUMENTS if correction.get(name)), ())
    items = [named] if isinstance(named, str) else named
    if not isinstance(items, (list, tuple)):
        return text, ()
    ids = (item.get("id") if isinstance(item, Mapping) else item for item in items)
    return text, tuple(item for item in ids if isinstance(item, str))


_QUERY_FIELDS = (*QUESTION_FIELDS, "task_type")
_FEEDBACK_FIELDS = ("outcome", "answer", *DOCUMENT_FIELDS, "correction")
_ALL_FIELDS = ("session", *_QUERY_FIELDS, *_FEEDBACK_FIELDS, "time")


class ReplayLine(NamedTuple):
    """A line of a replay file.

    Numbers begin with 1; of a row of a table the text is the JSON object that says the same.
    ``why`` says why it cannot be read; empty where it can.
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

    ``said`` are the fields of the feedback; None where nothing was said.
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
    """Yield the lines of a file that are not blank; of a file named ``.csv`` the rows."""
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

    A line with relevant documents and without an outcome counts as a success.
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

    ``line`` is the last replayed one, ``digest`` the SHA-256 of all lines up to it, ``name`` the id
    of the last line whose query was asked.
    """

    line: int = 0
    digest: str = ""
    name: str = ""

    def write(self, path: Path) -> None:
        """Write the checkpoint atomically to a private file."""
        with open_replacement(path, f"the checkpoint {path}") as file:
            file.write(json.dumps(self._asdict()).encode())

    @classmethod
    def load(cls, path: Path) -> "ReplayCheckpoint":
        """Load a checkpoint; an empty one if the file does not exist."""
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
