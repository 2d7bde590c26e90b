"""Archives: read, and checked to be whole and well-formed before any row is returned.

Types and ranges of a row follow from the columns of the tables; JSON columns are parsed as later
readers of the store parse them, so that these cannot fail on them.
"""

import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args
from zipfile import BadZipFile, ZipFile

import numpy as np
import sqlalchemy as sa
from pydantic import Field, TypeAdapter
from pydantic_core import CoreSchema, SchemaValidator, core_schema, from_json, to_json

from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.config.settings import load_knobs
from crabpath_retrievers.core.changes import STATES, NoteKind
from crabpath_retrievers.core.feedback import Feedback, FeedbackStatus
from crabpath_retrievers.core.query import parse_namespace
from crabpath_retrievers.core.records import Authority, EdgeKind, ReturnedDocument, Turn
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, SchemaVersionError
from crabpath_retrievers.learning.standalone import PUBLISHED_SETTINGS, parse_settings
from crabpath_retrievers.parts.operation.maintenance import HealthReport
from crabpath_retrievers.parts.operation.rows import Row
from crabpath_retrievers.rerank import Posterior, Ranker, remove_gain
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import SCHEMA_VERSION as SCHEMA
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import SNAPSHOT_TABLES, TABLES
from crabpath_retrievers.vectors.embedder import parse_identity

_BITS = {sa.SmallInteger: 16, sa.BigInteger: 64, sa.Integer: 32}
_ROUNDING = 1e-6
_MAX_TIME = 1e11  # seconds since the epoch, in the year 5138
# Columns of weights, and of other numbers that may be below 0; all others are at least 0.
_WEIGHT_COLUMNS = frozenset({"floor", "prior", "weight"})
_SIGNED_COLUMNS = frozenset({"count", "delta", "owner"})
_LEAST = {(s.transitions.name, "level"): STATES}
# Allowed values of columns of integers, and of texts.
_ALLOWED_NUMBERS: Mapping[str, list[Any]] = {
    "kind": [kind.value for kind in EdgeKind],
    "authority": [authority.value for authority in Authority],
    "frozen": [0, 1],
    "indexed": [0, 1],
}
_ALLOWED_NAMES: Mapping[tuple[str, str], list[Any]] = {
    (s.feedback.name, "status"): list(get_args(FeedbackStatus)),
    (s.notes.name, "kind"): list(get_args(NoteKind)),
}
# Columns that archives of older schemas lack, with what they hold then.
_LATER_COLUMNS: Mapping[tuple[str, str], Any] = {
    (s.turns.name, "session"): None,
    (s.notes.name, "said"): 0,
    (s.notes.name, "said_directly"): None,
    (s.notes.name, "token"): None,
    (s.feedback.name, "token"): None,
}
_COUNT_FACTS = frozenset({"hubs", "nodes", "notes", "tokens"})
_MAX_UNPACKED = 1 << 26  # bytes of an unpacked value; more only below a ratio of 32
_UNPACKED_RATIO = 32

MAX_INTEGER = (1 << 63) - 1
"""Largest integer that every database stores."""

MALFORMED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    *(RecursionError, zlib.error, CrabPathError),
)
"""Exceptions raised while reading a malformed row."""


@cache
def make_row_parser(table: str, dimension: int | None) -> Callable[[bytes], dict[str, Any]]:
    """Make a parser of the rows of a table, as JSON; it raises one of ``MALFORMED`` for others.

    ``dimension`` is that of vectors; None if the archive has none.
    """
    read = _build_validator(EXPORTED[table].c)
    stored = EXPORTED[table].name
    missing = {name: value for (of, name), value in _LATER_COLUMNS.items() if of == stored}

    def parse(line: bytes) -> dict[str, Any]:
        row: dict[str, Any] = {**missing, **read.validate_json(line)}
        for column, value in row.items():
            if isinstance(value, str) and "\x00" in value:
                msg = f"{column} contains a NUL character"
                raise ValueError(msg)
            check = _CHECKS.get((table, column))
            if check is not None and value is not None:
                check(value)
        if row.get("embedding") is not None:
            _require_vector(row["embedding"], dimension)
        if table == "snapshots":
            _require_snapshot(row["content"], dimension)
        if table == "meta":
            _require_fact(row["name"], row["value"])
        return row

    return parse


def _build_validator(columns: Iterable[sa.Column[Any]]) -> SchemaValidator:
    fields = {
        column.name: core_schema.typed_dict_field(
            _make_schema(column), required=(column.table.name, column.name) not in _LATER_COLUMNS
        )
        for column in columns
    }
    config = core_schema.CoreConfig(val_json_bytes="base64", extra_fields_behavior="forbid")
    return SchemaValidator(core_schema.typed_dict_schema(fields, config=config))


def _require_vector(vector: bytes, dimension: int | None) -> None:
    numbers = np.frombuffer(vector, dtype="<f2")
    if dimension not in {None, numbers.size} or not np.isfinite(numbers).all():
        msg = "its vector has another dimension or is not finite"
        raise ValueError(msg)


def _require_snapshot(data: bytes, dimension: int | None) -> None:
    found = _parse_json(_inflate(data))
    for table in SNAPSHOT_TABLES:
        parse = make_row_parser(table, dimension)
        for row in found[table]:
            parse(to_json(row))


def _make_schema(column: sa.Column[Any]) -> CoreSchema:
    kind, place = column.type, (column.table.name, column.name)
    schema: CoreSchema
    if place in _ALLOWED_NAMES:
        schema = core_schema.literal_schema(_ALLOWED_NAMES[place])
    elif isinstance(kind, sa.Integer) and column.name in _ALLOWED_NUMBERS:
        schema = core_schema.literal_schema(_ALLOWED_NUMBERS[column.name])
    elif isinstance(kind, sa.LargeBinary):
        schema = core_schema.bytes_schema(strict=True)
    elif isinstance(kind, sa.Integer):
        most = 1 << next(bits for of, bits in _BITS.items() if isinstance(kind, of)) - 1
        least = -most if column.name in _SIGNED_COLUMNS else _LEAST.get(place, 0)
        schema = core_schema.int_schema(strict=True, ge=least, le=most - 1)
    elif isinstance(kind, sa.Float):
        low, high = _get_bounds(column.name)
        schema = core_schema.float_schema(strict=True, allow_inf_nan=False, ge=low, le=high)
    else:
        length = kind.length if isinstance(kind, sa.String) else None
        schema = core_schema.str_schema(strict=True, max_length=length)
    return core_schema.nullable_schema(schema) if column.nullable else schema


def _get_bounds(column: str) -> tuple[float | None, float | None]:
    if column in _WEIGHT_COLUMNS:
        return -1.0 - _ROUNDING, 1.0 + _ROUNDING
    if column == "created":
        return 0.0, _MAX_TIME
    return (None if column in _SIGNED_COLUMNS else -_ROUNDING), None


def _parse_json(text: str | bytes) -> Any:
    """Parse JSON without NaN and infinity; deep nesting raises an error."""
    return from_json(text, allow_inf_nan=False)


def _make_parser(kind: Any) -> Callable[[str], Any]:
    """Make a strict parser of JSON of a type."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def parse(text: str) -> Any:
        _require_finite(_parse_json(text))
        return adapter.validate_json(text, strict=True)

    return parse


def _require_finite(value: Any) -> None:
    """Refuse numbers that are too large and texts with NUL, at any depth."""
    if isinstance(value, dict):
        for item in value.values():
            _require_finite(item)
    elif isinstance(value, list):
        for item in value:
            _require_finite(item)
    elif isinstance(value, (int, float)) and not -(2.0**63) <= value < 2.0**63:
        msg = f"{value!r:.40} is too large"
        raise ValueError(msg)
    elif isinstance(value, str) and "\x00" in value:
        msg = "a text contains a NUL character"
        raise ValueError(msg)


@dataclass
class _NoteQuery:
    note: str
    query: str | None
    asked: str | None = None
    turn: str | None = None
    said: int = 0


# Id, turns, credit, former clock, labelled turns, credit by user; or that user, in older archives.
_Credit: TypeAlias = dict[str, float]
_EpisodeGain: TypeAlias = tuple[
    str, float, _Credit, int | None, float, dict[str, _Credit] | str | None
]


@dataclass
class _Lesson:
    """The record of what one feedback changed."""

    outcomes: list[float]
    reliability: dict[str, tuple[float, float]]
    notes: list[_NoteQuery]
    used: list[str]
    episodes: list[_EpisodeGain]
    usage: list[tuple[int, float, float, float]]
    pair_counts: list[tuple[int, int, int, float]]
    transitions: list[tuple[int, int, str, str, int, float, float, float, float]]


_parse_turn, _parse_feedback, _parse_lesson, _parse_report = map(
    _make_parser, (Turn, Feedback, _Lesson, HealthReport)
)
_parse_added = _make_parser(list[ReturnedDocument])
_parse_images = _make_parser(list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]])
_parse_object, _parse_credits = _make_parser(dict[str, Any]), _make_parser(dict[str, float])
_parse_user_credits = _make_parser(dict[str, dict[str, float]])


def _check_turn(text: str) -> None:
    _parse_turn(text)
    turn = Turn.from_dict(json.loads(text))
    require_namespace(turn.namespace)
    _ = turn.trace, turn.follow_log


def _check_feedback(text: str) -> None:
    _parse_feedback(text)
    # Documents that it names and its turn did not return.
    _parse_added(to_json(_parse_json(text).get("added") or []).decode())
    Feedback.from_record(text)


def _check_report(text: str) -> None:
    _parse_report(text)
    HealthReport.from_dict(json.loads(text))


def _check_inverse(text: str) -> None:
    _parse_images(to_json(_parse_object(text).get("images") or []).decode())


def _check_lesson(text: str) -> None:
    for _, _, kind, _ in _parse_lesson(text).pair_counts:
        EdgeKind(kind)


def require_namespace(name: str) -> None:
    """Refuse an invalid name of a namespace; raises one of ``MALFORMED``."""
    if parse_namespace(name) != name:
        msg = "it is not a name of a namespace"
        raise ValueError(msg)


@cache
def _load_prior() -> Posterior:
    return Posterior.of(Ranker.load().weights, LearningSettings().prior_strength)


def _check_mind(text: str) -> None:
    _require_finite(_parse_json(text))
    model, size = NamespaceModel.from_json(text, _load_prior()), len(_load_prior().mean)
    mean, precision = model.posterior.mean, model.posterior.precision
    if mean.shape != (size,) or precision.shape != (size, size) or not np.isfinite(mean).all():
        msg = "its posterior of the ranker has another shape"
        raise ValueError(msg)
    np.linalg.cholesky(precision)  # raises if it is not positive definite
    for number in (model.baseline.mean, *(n for pair in model.trust.spoken.values() for n in pair)):
        _require_number(number)
    if model.baseline.count < 0:
        msg = "a count is below 0"
        raise ValueError(msg)
    _ = model.weights(), model.trust.calibrate()


def _require_number(number: object) -> None:
    if not isinstance(number, (int, float)) or isinstance(number, bool) or number - number != 0:
        msg = f"{number!r:.40} is not a finite number"
        raise ValueError(msg)


def _check_ranker(data: bytes) -> None:
    _inflate(data)
    gained = remove_gain(_load_prior(), data)
    if not (np.isfinite(gained.mean).all() and np.isfinite(gained.precision).all()):
        msg = "an update of the ranker is not finite"
        raise ValueError(msg)


def _check_knobs(text: str) -> None:
    _parse_object(text)
    load_knobs(text, Settings())


def _check_words(codes: bytes) -> None:
    if len(codes) % 2:
        msg = "the codes of its words are truncated"
        raise ValueError(msg)


def _inflate(data: bytes) -> bytes:
    """Decompress a value; refuse one that expands too much."""
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(data, max(_MAX_UNPACKED, _UNPACKED_RATIO * len(data)))
    if not unpacking.eof:
        msg = "it is truncated, or larger than any value that an export writes"
        raise ValueError(msg)
    return found


def _require_id(text: str) -> None:
    """Refuse an empty id: no vector index takes it."""
    if not text:
        msg = "an id is empty"
        raise ValueError(msg)


def _require_fact(name: str, value: str) -> None:
    """Refuse the row ``name`` of ``meta`` if its ``value`` cannot be read."""
    if name in LOCAL_META:
        msg = f"{name} is local to one store"
        raise ValueError(msg)
    if name == "embedder":
        parse_dimension(value)
    elif name in _COUNT_FACTS:
        _require_finite(int(value))
    elif name == PUBLISHED_SETTINGS:
        _parse_object(value)
        parse_settings(value)
    elif name.startswith("trial:"):
        _parse_object(value)


def parse_dimension(embedder: str) -> int:
    """Return the dimension in the stored description of an embedder."""
    dimension, known = _parse_object(embedder)["dimension"], parse_identity(embedder)
    if dimension != known.probe.size or not np.isfinite(known.probe).all():
        msg = "its probe vector has another dimension or is not finite"
        raise ValueError(msg)
    if not isinstance(known.name, str | None):
        msg = "its name is no text"
        raise TypeError(msg)
    return known.probe.size


_CHECKS: Mapping[tuple[str, str], Callable[[Any], object]] = {
    ("contents", "metadata"): _parse_object,
    ("episodes", "documents"): _parse_credits,
    ("episodes", "id"): _require_id,
    ("episodes", "credit_by_user"): _parse_user_credits,
    ("feedback", "namespace"): require_namespace,
    ("feedback", "payload"): _check_feedback,
    ("health_reports", "report"): _check_report,
    ("journal", "inverse"): _check_inverse,
    ("journal", "payload"): _parse_object,
    ("namespaces", "knobs"): _check_knobs,
    ("namespaces", "model"): _check_mind,
    ("namespaces", "name"): require_namespace,
    ("namespaces", "tuning"): _parse_object,
    ("nodes", "id"): _require_id,
    ("nodes", "terms"): _check_words,
    ("feedback_effects", "ranker"): _check_ranker,
    ("feedback_effects", "record"): _check_lesson,
    ("turns", "record"): _check_turn,
}
"""Checks of columns that hold more than a number or a text."""


FORMAT = "crabpath-archive"
VERSION = 1
LOCAL_META = ("schema_version", "origin", "vectors", "corpus", "identity", "indexed", "roots")
"""Metadata that is not copied to another store."""

EXPORTED = {name: t for name, t in TABLES.items() if name not in {"staging", "index_deletions"}}
"""Tables in the archive of a whole store: all but the queues of unfinished work."""

MANIFEST_NAME = "manifest.json"
DOCUMENTS = "documents"
"""Member of the archive of a namespace with the keys and ids of the documents that it mentions."""

Block = tuple[str, list[Row]]
"""Name of a table, and some of its rows."""

_Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of an archive.

    Without ``namespace`` it is of a whole store; only then there is the ``last`` autoincrement key
    of each table. ``rows`` are counted by member; ``version`` is that of the format.
    """

    namespace: str | None
    embedder: str | None
    last: Mapping[str, _Count]
    rows: Mapping[str, _Count] = field(default_factory=dict)
    schema_version: int = SCHEMA
    created: float = field(default_factory=time.time)
    version: int = VERSION
    format: str = FORMAT

    def to_bytes(self) -> bytes:
        """Serialise the manifest."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which identifies the archive."""
        return sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Manifest":
        """Read a manifest from :meth:`to_bytes`; ``name`` is that of the archive in messages."""
        try:
            found = from_json(data, allow_inf_nan=False)
            foreign = found["format"] != FORMAT
            versions = found["version"], found["schema_version"]
            newer = versions[0] > VERSION or versions[1] > SCHEMA
        except MALFORMED as error:
            raise InvalidInputError(_NOT_AN_ARCHIVE.format(name)) from error
        if foreign:
            raise InvalidInputError(_NOT_AN_ARCHIVE.format(name))
        if newer:
            msg = (
                f"{name} has archive version {versions[0]} and schema version {versions[1]}, but "
                f"this release supports {VERSION} and {SCHEMA}: upgrade crabpath-retrievers"
            )
            raise SchemaVersionError(msg)
        try:
            manifest = _ADAPTER.validate_json(data, strict=True)
            manifest.require_sound()
        except MALFORMED as error:
            msg = (
                f"{name} is damaged: its {MANIFEST_NAME} is invalid; copy the file again, or "
                "export again"
            )
            raise InvalidInputError(msg) from error
        return manifest

    def require_sound(self) -> None:
        """Refuse values that no export writes."""
        if min(self.version, self.schema_version) < 1 or self.last.keys() - EXPORTED.keys():
            msg = "a version is below 1, or a table is unknown"
            raise ValueError(msg)
        if any(EXPORTED[name].autoincrement_column is None for name in self.last):
            msg = "a table without autoincrement has a last key"
            raise ValueError(msg)
        if self.namespace is not None:
            require_namespace(self.namespace)
        if self.embedder is not None:
            parse_dimension(self.embedder)


_ADAPTER = TypeAdapter(Manifest)
_NOT_AN_ARCHIVE = (
    "{} is not a CrabPath archive: give a file that crabpath transfer export has written"
)


_BATCH_ROWS = 1000  # rows in memory
_BATCH_BYTES = 1 << 23  # bytes of rows in memory, unless one row is longer
# Longest line: this many bytes, plus a multiple of the compressed size of its member, so that a
# small archive cannot fill the memory.
_MAX_LINE = 1 << 24
_MAX_RATIO = 4
_MAX_MANIFEST = 1 << 20
# Exceptions that zipfile and zlib raise for damaged bytes.
_DAMAGE = (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)


class Archive:
    """An archive whose members are present, known and undamaged."""

    def __init__(self, file: ZipFile, manifest: Manifest, name: str) -> None:
        """Keep a verified ``file`` to read from; ``name`` is used in messages."""
        self._file, self.manifest, self._name = file, manifest, name
        named = manifest.embedder
        self._dimension = None if named is None else parse_dimension(named)

    def blocks(self, names: list[str] | None = None) -> Iterator[Block]:
        """Yield the rows of some tables, or of all, table by table."""
        for name in list(self.manifest.rows) if names is None else names:
            if name in self.manifest.rows:
                yield from ((name, rows) for rows in _batch_rows(self._read_rows(name)))

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the rows of one table; see :meth:`blocks`."""
        for _, rows in self.blocks([name]):
            yield from rows

    def _read_rows(self, name: str) -> Iterator[tuple[Row, int]]:
        """Yield the rows of a table, each with its size in bytes."""
        parse: Callable[[bytes], dict[str, Any]] = (
            _build_validator([s.nodes.c.key, s.nodes.c.id]).validate_json
            if name == DOCUMENTS
            else make_row_parser(name, self._dimension)
        )
        for number, line in enumerate(self._read_lines(f"{name}.jsonl"), 1):
            try:
                row = parse(line)
                self._require_embedder(name, row)
            except MALFORMED as error:
                msg = (
                    f"line {number} of {name}.jsonl in {self._name} is not a valid row: export "
                    "again"
                )
                raise InvalidInputError(msg) from error
            yield row, len(line)

    def _read_lines(self, member: str) -> Iterator[bytes]:
        most = _MAX_LINE + _MAX_RATIO * self._file.getinfo(member).compress_size
        with self._file.open(member) as lines:
            while line := lines.readline(most):
                if len(line) == most:
                    msg = f"{member} in {self._name} has a line of over {most} bytes: export again"
                    raise InvalidInputError(msg)
                yield line

    def _require_embedder(self, name: str, row: Row) -> None:
        """Refuse a row of the table ``name`` with another embedder than that of the manifest."""
        named = name == "meta" and row["name"] == "embedder"
        if named and row["value"] != self.manifest.embedder:
            raise ValueError


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive and verify that each member is present, known and undamaged."""
    name = str(path)
    try:
        file = ZipFile(path)
    except OSError as error:
        msg = (
            f"{name} cannot be read ({error.strerror}): give a file from `crabpath transfer export`"
        )
        raise InvalidInputError(msg) from error
    except _DAMAGE as error:
        msg = f"{name} is not a CrabPath archive, or is truncated: copy it again, or export again"
        raise InvalidInputError(msg) from error
    with file:
        manifest = _read_manifest(file, name)
        _require_members(file, manifest, name)
        _require_undamaged(file, name)
        yield Archive(file, manifest, name)


def is_archive(path: Path) -> bool:
    """Whether a file looks like an archive; its members are not verified."""
    try:
        with ZipFile(path) as file:
            _read_manifest(file, str(path))
    except SchemaVersionError:
        return True
    except _DAMAGE:
        return False
    return True


def _read_manifest(file: ZipFile, name: str) -> Manifest:
    try:
        with file.open(MANIFEST_NAME) as member:
            data = member.read(_MAX_MANIFEST)
    except (KeyError, *_DAMAGE) as error:
        msg = f"{name} is not a CrabPath archive: it has no readable {MANIFEST_NAME}"
        raise InvalidInputError(msg) from error
    return Manifest.from_bytes(data, name)


def _require_members(file: ZipFile, manifest: Manifest, name: str) -> None:
    """Refuse members that are unknown, duplicate or missing, by the manifest.

    ``name`` is that of the archive in messages.
    """
    known = {MANIFEST_NAME, *(f"{member}.jsonl" for member in (*EXPORTED, DOCUMENTS))}
    listed = {MANIFEST_NAME, *(f"{member}.jsonl" for member in manifest.rows)}
    there = file.namelist()
    odd = sorted({*there, *listed} - known)
    if odd:
        msg = f"{name} contains {odd[0]!r}, which does not belong in an archive: nothing was read"
        raise InvalidInputError(msg)
    if sorted(there) != sorted(listed):
        wrong = sorted(set(there) ^ listed) or sorted(n for n in there if there.count(n) > 1)
        msg = f"{name} is damaged: {wrong[0]} is missing, or is not in the manifest"
        raise InvalidInputError(msg)


def _require_undamaged(file: ZipFile, name: str) -> None:
    """Refuse members whose bytes do not agree with their check sums.

    ``name`` is that of the archive in messages.
    """
    try:
        damaged = file.testzip()
    except _DAMAGE:
        damaged = "a member"
    if damaged is not None:
        msg = f"{name} is damaged: {damaged} cannot be read; copy it again, or export again"
        raise InvalidInputError(msg)


def _batch_rows(rows: Iterator[tuple[Row, int]]) -> Iterator[list[Row]]:
    """Group rows in batches of bounded size."""
    part, size = list[Row](), 0
    for row, length in rows:
        part.append(row)
        size += length
        if len(part) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
