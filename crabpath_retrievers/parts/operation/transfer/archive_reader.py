"""Reads an archive, which is checked to be whole before any row is returned."""

import json
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated
from zipfile import BadZipFile, ZipFile

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.parts.operation.transfer.archive_rows import (
    MALFORMED,
    MAX_INTEGER,
    make_document_parser,
    make_row_parser,
    parse_dimension,
    require_namespace,
)
from crabpath_retrievers.parts.operation.transfer.fill import Block
from crabpath_retrievers.storage.schema import EXPORTED
from crabpath_retrievers.storage.store import SCHEMA_VERSION as SCHEMA
from crabpath_retrievers.storage.write.journal import Row

FORMAT = "crabpath-archive"
VERSION = 1
MANIFEST_NAME = "manifest.json"
DOCUMENTS = "documents"
"""Member of the archive of a namespace with the keys and ids of the documents that it mentions."""

_Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of an archive.

    Attributes:
        namespace: The exported namespace; None for a whole store.
        embedder: Stored description of the embedder; None without one.
        last: Last autoincrement key of each table; only for a whole store.
        rows: Number of rows by member.
        schema_version: Schema version of the exported store.
        created: Time of the export, in seconds since the epoch.
        version: Version of the archive format.
        format: Name of the archive format.
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
        """The inverse of :meth:`to_bytes`.

        Args:
            data: The serialised manifest.
            name: Name of the archive, for messages.

        Raises:
            InvalidInputError: It is not the manifest of an archive.
            SchemaVersionError: A newer release has written it.
        """
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
        """Refuse values that no export writes.

        Raises:
            ValueError: A version, name, key or embedder is invalid.
        """
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
        """Read from a verified ``file``; ``name`` is used in messages."""
        self._file, self.manifest, self._name = file, manifest, name
        named = manifest.embedder
        self._dimension = None if named is None else parse_dimension(named)

    def blocks(self, names: list[str] | None = None) -> Iterator[Block]:
        """Yield the rows of some tables, or of all, table by table.

        Raises:
            InvalidInputError: A row is not valid for its table.
        """
        for name in list(self.manifest.rows) if names is None else names:
            if name in self.manifest.rows:
                yield from ((name, rows) for rows in _batch_rows(self._read_rows(name)))

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the rows of one table; see :meth:`blocks`."""
        for _, rows in self.blocks([name]):
            yield from rows

    def _read_rows(self, name: str) -> Iterator[tuple[Row, int]]:
        """Yield the rows of a table, each with its size in bytes."""
        if name == DOCUMENTS:
            parse = make_document_parser()
        else:
            parse = make_row_parser(name, self._dimension)
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
        """Refuse a store whose embedder differs from that in the manifest."""
        named = name == "meta" and row["name"] == "embedder"
        if named and row["value"] != self.manifest.embedder:
            raise ValueError


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive and verify that each member is present, known and undamaged.

    Raises:
        InvalidInputError: The file is missing, not an archive, truncated or damaged.
        SchemaVersionError: A newer release has written it.
    """
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
    """Refuse members that are unknown, duplicate or missing."""
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
    """Refuse members whose bytes do not agree with their check sums."""
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
