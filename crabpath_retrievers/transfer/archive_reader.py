"""Reads an archive; all members are verified before any row is returned.

The manifest of an archive: version, origin and members.
"""

import json
import re
import time
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Annotated, Any
from zipfile import BadZipFile, ZipFile

import sqlalchemy as sa
from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from crabpath_retrievers.core.changes.archive import Block, Row
from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.storage.registry import EXPORTED, LOCAL_COLUMNS
from crabpath_retrievers.storage.store import SCHEMA_VERSION as SCHEMA
from crabpath_retrievers.transfer.archive_rows import (
    MALFORMED,
    MAX_INTEGER,
    VECTOR_COLUMN,
    VECTOR_DTYPE,
    RowReader,
    parse_dimension,
    require_namespace,
)

FORMAT = "crabpath-archive"
VERSION = 1
MANIFEST_NAME = "manifest.json"

_Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive.

    Attributes:
        rows: Number of lines or vectors.
        size: Uncompressed size, in bytes.
        sha256: SHA-256 of the uncompressed bytes.
        columns: Columns of each line; empty for vectors.
    """

    rows: _Count
    size: _Count
    sha256: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of an archive.

    Attributes:
        namespace: The exported namespace; None for a whole store.
        embedder: Stored description of the embedder; None without one.
        last: Last autoincrement key of each table; only for a whole store.
        members: Members by name.
        schema_version: Schema version of the exported store.
        created: Time of the export, in seconds since the epoch.
        version: Version of the archive format.
        format: Name of the archive format.
    """

    namespace: str | None
    embedder: str | None
    last: Mapping[str, _Count]
    members: Mapping[str, Member] = field(default_factory=dict)
    schema_version: int = SCHEMA
    created: float = field(default_factory=time.time)
    version: int = VERSION
    format: str = FORMAT

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows by table."""
        lines = ((n, member.rows) for n, member in self.members.items() if n.endswith(".jsonl"))
        return {name.removesuffix(".jsonl"): rows for name, rows in lines}

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
            SchemaVersionError: A newer release has written it, or one before the first.
        """
        try:
            found = from_json(data, allow_inf_nan=False)
            foreign = found["format"] != FORMAT
            unreleased = "schema" in found and "schema_version" not in found
            versions = found["version"], SCHEMA if unreleased else found["schema_version"]
            newer = versions[0] > VERSION or versions[1] > SCHEMA
        except MALFORMED as error:
            raise InvalidInputError(_NOT_AN_ARCHIVE.format(name)) from error
        if foreign:
            raise InvalidInputError(_NOT_AN_ARCHIVE.format(name))
        if unreleased:
            msg = (
                f"{name} was written before the first release and its schema is not supported: "
                "add the documents to a new store"
            )
            raise SchemaVersionError(msg)
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
_LARGEST_VECTOR = 1 << 16
_HEADER_START = 10  # bytes before the numpy header; the last two are its length
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<f2', 'fortran_order': False, "
    rb"'shape': \((\d{1,15}), (\d{1,15})\), \} *\n",
    re.DOTALL,
)
_CHUNK_BYTES = 1 << 20
_MAX_MANIFEST = 1 << 20
# Exceptions that zipfile and zlib raise for damaged bytes.
_DAMAGE = (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)


class Archive:
    """A verified archive."""

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
            if f"{name}.jsonl" in self.manifest.members:
                yield from ((name, rows) for rows in _batch_rows(self._read_rows(name)))

    def _read_rows(self, name: str) -> Iterator[tuple[Row, int]]:
        """Yield the rows of a table, each with its size in bytes."""
        columns = self.manifest.members[f"{name}.jsonl"].columns
        reader = RowReader(name, columns, self.manifest.namespace is not None, self._dimension)
        parse = reader.make_parser()
        binary = [c for c in columns if isinstance(EXPORTED[name].c[c].type, sa.LargeBinary)]
        with self._open_vectors(name) as vectors:
            for number, line in enumerate(self._read_lines(f"{name}.jsonl"), 1):
                try:
                    row = parse(line)
                    for column in binary:
                        row[column] = _decode_bytes(
                            row[column], vectors, vector=column == VECTOR_COLUMN
                        )
                    reader.require_readable(row)
                    self._require_embedder(name, row)
                except MALFORMED as error:
                    raise InvalidInputError(self._describe_bad_row(name, number)) from error
                yield row, len(line)

    def _read_lines(self, member: str) -> Iterator[bytes]:
        most = _MAX_LINE + _MAX_RATIO * self._file.getinfo(member).compress_size
        with self._file.open(member) as lines:
            while line := lines.readline(most):
                if len(line) == most:
                    msg = f"{member} in {self._name} has a line of over {most} bytes: export again"
                    raise InvalidInputError(msg)
                yield line

    def _describe_bad_row(self, name: str, number: int) -> str:
        return f"line {number} of {name}.jsonl in {self._name} is not a valid row: export again"

    def _require_embedder(self, name: str, row: Row) -> None:
        """Refuse a store whose embedder differs from that in the manifest."""
        named = name == "meta" and row["name"] == "embedder"
        if named and row["value"] != self.manifest.embedder:
            raise ValueError

    @contextmanager
    def _open_vectors(self, name: str) -> Iterator[Iterator[tuple[int, bytes]]]:
        """Open the vectors of a table: pairs of index and bytes, in order."""
        if f"{name}.npy" not in self.manifest.members:
            yield iter(())
            return
        with self._file.open(f"{name}.npy") as file:
            count, size = _read_shape(file)
            yield ((n, file.read(size * VECTOR_DTYPE.itemsize)) for n in range(count))


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive and verify that each member is present, known and unchanged.

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
        for member, described in manifest.members.items():
            _require_unchanged(file, member, described, name)
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
    possible = {f"{table}.{kind}" for table in EXPORTED for kind in ("jsonl", "npy")}
    listed, there = {*manifest.members, MANIFEST_NAME}, file.namelist()
    odd = sorted({*there, *listed} - possible - {MANIFEST_NAME})
    if odd:
        msg = f"{name} contains {odd[0]!r}, which does not belong in an archive: nothing was read"
        raise InvalidInputError(msg)
    if sorted(there) != sorted(listed):
        wrong = sorted(set(there) ^ listed) or sorted(n for n in there if there.count(n) > 1)
        msg = f"{name} is damaged: {wrong[0]} is missing, or is not in the manifest"
        raise InvalidInputError(msg)
    for member, described in manifest.members.items():
        table = member.rpartition(".")[0]
        unknown = set(described.columns) - set(EXPORTED[table].c.keys())
        if unknown:
            msg = f"{name} has an unknown column {min(unknown)!r} in {member}"
            raise InvalidInputError(msg)
        if member.endswith(".jsonl"):
            _require_columns(table, described, name, manifest)


def _require_columns(table: str, member: Member, name: str, manifest: Manifest) -> None:
    """Refuse rows without a column of their table."""
    local = set() if manifest.namespace is None else LOCAL_COLUMNS
    missing = set(EXPORTED[table].c.keys()) - local - set(member.columns)
    if missing and member.rows:
        msg = f"{name} lacks the column {min(missing)!r} of {table}: export again"
        raise InvalidInputError(msg)


def _require_unchanged(file: ZipFile, member: str, described: Member, name: str) -> None:
    """Refuse a member whose size or hash differs from the manifest."""
    total, size = sha256(), 0
    try:
        with file.open(member) as stream:
            while size <= described.size and (piece := stream.read(_CHUNK_BYTES)):
                total.update(piece)
                size += len(piece)
        if member.endswith(".npy"):
            _require_vectors(file, member, described)
    except _DAMAGE as error:
        msg = f"{name} is damaged: {member} cannot be read; copy it again, or export again"
        raise InvalidInputError(msg) from error
    if (size, total.hexdigest()) != (described.size, described.sha256):
        msg = f"{name} is damaged: {member} was changed; copy it again, or export again"
        raise InvalidInputError(msg)


def _require_vectors(file: ZipFile, member: str, described: Member) -> None:
    with file.open(member) as stream:
        count, size = _read_shape(stream)
        if described.size != stream.tell() + count * size * VECTOR_DTYPE.itemsize:
            raise ValueError


def _read_shape(file: IO[bytes]) -> tuple[int, int]:
    """Read the numpy header of vectors: their count and dimension.

    The header is matched, not evaluated.

    Raises:
        ValueError: The header is not one that :func:`write_archive` writes.
    """
    start = file.read(_HEADER_START)
    size = int.from_bytes(start[-2:], "little")
    found = _HEADER.fullmatch(start + file.read(size))
    if found is None:
        raise ValueError
    count, dimension = map(int, found.groups())
    if not 0 < dimension <= _LARGEST_VECTOR:
        raise ValueError
    return count, dimension


def _decode_bytes(
    value: Any, vectors: Iterator[tuple[int, bytes]], *, vector: bool
) -> bytes | None:
    if value is None:
        return None
    if not vector:
        return b64decode(value, validate=True)
    place, found = next(vectors, (None, b""))
    if place != value:
        raise ValueError
    return found


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
