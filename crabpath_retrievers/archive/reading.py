"""Reading an archive: everything is checked before anything is handed out."""

import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import sqlalchemy as sa

from crabpath_retrievers.archive.checking import NUMBER, ODD, VECTORS, RowReader, dimension_of
from crabpath_retrievers.archive.manifest import NAME, Manifest, Member
from crabpath_retrievers.changes.archive import Block, Row
from crabpath_retrievers.errors import InvalidInputError, SchemaVersionError
from crabpath_retrievers.storage.dump import tables

_AT_ONCE = 1000  # rows in memory
_MANY = 1 << 23  # bytes of rows in memory, but for one that is longer
# A line may be longer than this by what its member takes in the archive, a few times over: so a
# small archive cannot fill the memory.
_LONG = 1 << 24
_PACKED = 4
_LARGEST_VECTOR = 1 << 16
_BEFORE = 10  # bytes before the header of vectors, whose length is in the last two
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<f2', 'fortran_order': False, "
    rb"'shape': \((\d{1,15}), (\d{1,15})\), \} *\n",
    re.DOTALL,
)
_PIECE = 1 << 20
_LONGEST_MANIFEST = 1 << 20
# What zipfile and zlib make of damaged bytes.
_DAMAGE = (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)


class Archive:
    """An archive whose members are all there and as they were written."""

    def __init__(self, file: ZipFile, manifest: Manifest, name: str) -> None:
        """Read from ``file``, which was checked; ``name`` is for messages."""
        self._file, self.manifest, self._name = file, manifest, name
        named = manifest.embedder
        self._dimension = None if named is None else dimension_of(named)

    def blocks(self, names: list[str] | None = None) -> Iterator[Block]:
        """Rows of these tables, or of all, one table after the other.

        Raises:
            InvalidInputError: A row is not what this table holds.
        """
        for name in list(self.manifest.rows) if names is None else names:
            if f"{name}.jsonl" in self.manifest.members:
                yield from ((name, rows) for rows in _parts(self._rows(name)))

    def _rows(self, name: str) -> Iterator[tuple[Row, int]]:
        """The rows of a table, each with the bytes that it takes."""
        columns = self.manifest.members[f"{name}.jsonl"].columns
        reader = RowReader(name, columns, self.manifest.namespace is not None, self._dimension)
        parse = reader.parser()
        binary = [c for c in columns if isinstance(tables()[name].c[c].type, sa.LargeBinary)]
        with self._vectors(name) as vectors:
            for number, line in enumerate(self._lines(f"{name}.jsonl"), 1):
                try:
                    row = parse(line)
                    for column in binary:
                        row[column] = _bytes(row[column], vectors, vector=column == VECTORS)
                    reader.require_readable(row)
                    self._require_embedder(name, row)
                except ODD as error:
                    raise InvalidInputError(self._odd(name, number)) from error
                yield row, len(line)

    def _lines(self, member: str) -> Iterator[bytes]:
        most = _LONG + _PACKED * self._file.getinfo(member).compress_size
        with self._file.open(member) as lines:
            while line := lines.readline(most):
                if len(line) == most:
                    msg = f"{member} in {self._name} has a line of over {most} bytes: export again"
                    raise InvalidInputError(msg)
                yield line

    def _odd(self, name: str, number: int) -> str:
        return f"line {number} of {name}.jsonl in {self._name} is no row of it: export again"

    def _require_embedder(self, name: str, row: Row) -> None:
        """Refuse a store that calls its embedder otherwise than the manifest does."""
        named = name == "meta" and row["name"] == "embedder"
        if named and row["value"] != self.manifest.embedder:
            raise ValueError

    @contextmanager
    def _vectors(self, name: str) -> Iterator[Iterator[tuple[int, bytes]]]:
        """The vectors of a table with their places, in order."""
        if f"{name}.npy" not in self.manifest.members:
            yield iter(())
            return
        with self._file.open(f"{name}.npy") as file:
            count, size = _shape(file)
            yield ((n, file.read(size * NUMBER.itemsize)) for n in range(count))


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
        msg = (
            f"{name} cannot be read ({error.strerror}): "
            "give what crabpath transfer export has written"
        )
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
        ValueError: It is not as :func:`write_archive` writes it; nothing that it says is run.
    """
    start = file.read(_BEFORE)
    size = int.from_bytes(start[-2:], "little")
    found = _HEADER.fullmatch(start + file.read(size))
    if found is None:
        raise ValueError
    count, dimension = map(int, found.groups())
    if not 0 < dimension <= _LARGEST_VECTOR:
        raise ValueError
    return count, dimension


def _bytes(value: Any, vectors: Iterator[tuple[int, bytes]], *, vector: bool) -> bytes | None:
    if value is None:
        return None
    if not vector:
        return b64decode(value, validate=True)
    place, found = next(vectors, (None, b""))
    if place != value:
        raise ValueError
    return found


def _parts(rows: Iterator[tuple[Row, int]]) -> Iterator[list[Row]]:
    """Rows in parts that fit into memory."""
    part, size = list[Row](), 0
    for row, length in rows:
        part.append(row)
        size += length
        if len(part) >= _AT_ONCE or size >= _MANY:
            yield part
            part, size = [], 0
    if part:
        yield part
