"""Reading an archive: everything is checked before anything is handed out."""

import json
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import BadZipFile, ZipFile

import numpy as np
import sqlalchemy as sa

from crabpath_retrievers.archive.manifest import NAME, Manifest, Member
from crabpath_retrievers.archive.writing import NUMBER, VECTORS
from crabpath_retrievers.changes.archive import Block, Row
from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.storage.dump import tables

T = TypeVar("T")
_AT_ONCE = 1000  # rows in memory
_PIECE = 1 << 20
_LONGEST_MANIFEST = 1 << 20
# What zipfile and zlib make of damaged bytes.
_DAMAGE = (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)


class Archive:
    """An archive whose members are all there and as they were written."""

    def __init__(self, file: ZipFile, manifest: Manifest, name: str) -> None:
        """Read from ``file``, which was checked; ``name`` is for messages."""
        self._file, self.manifest, self._name = file, manifest, name

    def blocks(self, names: list[str] | None = None) -> Iterator[Block]:
        """Rows of these tables, or of all, one table after the other.

        Raises:
            InvalidInputError: A row is not what this table holds.
        """
        for name in list(self.manifest.rows) if names is None else names:
            if f"{name}.jsonl" in self.manifest.members:
                yield from ((name, rows) for rows in _parts(self._rows(name)))

    def _rows(self, name: str) -> Iterator[Row]:
        table = tables()[name]
        binary = [c.name for c in table.c if isinstance(c.type, sa.LargeBinary)]
        columns = set(self.manifest.members[f"{name}.jsonl"].columns)
        with self._file.open(f"{name}.jsonl") as lines, self._vectors(name) as vectors:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    if row.keys() != columns:
                        raise ValueError  # noqa: TRY301  as any other odd line
                    for column in columns.intersection(binary):
                        row[column] = _bytes(row[column], vectors, vector=column == VECTORS)
                except (ValueError, TypeError, AttributeError, StopIteration) as error:
                    msg = f"line {number} of {name}.jsonl in {self._name} is no row: export again"
                    raise InvalidInputError(msg) from error
                yield row

    @contextmanager
    def _vectors(self, name: str) -> Iterator[Iterator[bytes]]:
        """The vectors of a table, in order."""
        if f"{name}.npy" not in self.manifest.members:
            yield iter(())
            return
        with self._file.open(f"{name}.npy") as file:
            count, size = _shape(file)
            yield (file.read(size * NUMBER.itemsize) for _ in range(count))


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """An archive that was checked as a whole: each member is there, known and unchanged.

    Raises:
        InvalidInputError: It is missing, no archive, cut off or damaged.
        SchemaVersionError: A newer release has written it.
    """
    name = str(path)
    try:
        file = ZipFile(path)
    except OSError as error:
        msg = f"{name} cannot be read ({error.strerror}): give what crabpath export has written"
        raise InvalidInputError(msg) from error
    except _DAMAGE as error:
        msg = f"{name} is no archive of CrabPath, or it is cut off: get it anew, or export again"
        raise InvalidInputError(msg) from error
    with file:
        manifest = _manifest(file, name)
        _require_members(file, manifest, name)
        for member, described in manifest.members.items():
            _require_unchanged(file, member, described, name)
        yield Archive(file, manifest, name)


def is_archive(path: Path) -> bool:
    """Whether a file looks like an archive; its members are not checked."""
    try:
        with ZipFile(path) as file:
            _manifest(file, str(path))
    except SchemaVersionError:
        return True
    except _DAMAGE:
        return False
    return True


def _manifest(file: ZipFile, name: str) -> Manifest:
    try:
        with file.open(NAME) as member:
            data = member.read(_LONGEST_MANIFEST)
    except (KeyError, *_DAMAGE) as error:
        msg = f"{name} is no archive of CrabPath: it has no readable {NAME}"
        raise InvalidInputError(msg) from error
    return Manifest.from_bytes(data, name)


def _require_members(file: ZipFile, manifest: Manifest, name: str) -> None:
    """Refuse members that are unknown, there twice, or missing."""
    known = tables()
    possible = {f"{table}.{kind}" for table in known for kind in ("jsonl", "npy")}
    listed, there = {*manifest.members, NAME}, file.namelist()
    odd = sorted({*there, *listed} - possible - {NAME})
    if odd:
        msg = f"{name} holds {odd[0]!r}, which is no part of an archive: nothing was read from it"
        raise InvalidInputError(msg)
    if sorted(there) != sorted(listed):
        wrong = sorted(set(there) ^ listed) or sorted(n for n in there if there.count(n) > 1)
        msg = f"{name} is damaged: {wrong[0]} is missing, or there without being listed"
        raise InvalidInputError(msg)
    for member, described in manifest.members.items():
        table = known[member.rpartition(".")[0]]
        unknown = set(described.columns) - set(table.c.keys())
        if unknown:
            msg = f"{name} has a column {min(unknown)!r} in {member}, which no release knows"
            raise InvalidInputError(msg)


def _require_unchanged(file: ZipFile, member: str, described: Member, name: str) -> None:
    """Refuse a member that is not what was written."""
    total, size = sha256(), 0
    try:
        with file.open(member) as stream:
            while size <= described.size and (piece := stream.read(_PIECE)):
                total.update(piece)
                size += len(piece)
        if member.endswith(".npy"):
            _require_vectors(file, member, described)
    except _DAMAGE as error:
        msg = f"{name} is damaged: {member} cannot be read; get it anew, or export again"
        raise InvalidInputError(msg) from error
    if (size, total.hexdigest()) != (described.size, described.sha256):
        msg = f"{name} is damaged: {member} is not what was exported; get it anew, or export again"
        raise InvalidInputError(msg)


def _require_vectors(file: ZipFile, member: str, described: Member) -> None:
    with file.open(member) as stream:
        count, size = _shape(stream)
        if described.size != stream.tell() + count * size * NUMBER.itemsize:
            raise ValueError


def _shape(file: IO[bytes]) -> tuple[int, int]:
    """Count and dimension of vectors, whose header is read.

    Raises:
        ValueError: It holds something else; what it says is never run.
    """
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError
    shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    if kind != NUMBER or fortran or len(shape) != 2:  # noqa: PLR2004  count and dimension
        raise ValueError
    return int(shape[0]), int(shape[1])


def _bytes(value: Any, vectors: Iterator[bytes], *, vector: bool) -> bytes | None:
    if value is None:
        return None
    return next(vectors) if vector else b64decode(value)


def _parts(rows: Iterator[T]) -> Iterator[list[T]]:
    while part := list(islice(rows, _AT_ONCE)):
        yield part
