"""Writing an archive: a zip file of lines of JSON, vectors and a manifest, row by row."""

import os
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from pydantic_core import to_json

from crabpath_retrievers.archive.checking import NUMBER, VECTORS
from crabpath_retrievers.archive.manifest import NAME, Manifest, Member
from crabpath_retrievers.changes.archive import Row
from crabpath_retrievers.errors import InvalidInputError, StoreError

Table = tuple[str, Iterable[Sequence[Row]]]
"""A table by name, with its rows block by block."""


def write_archive(path: Path, manifest: Manifest, tables: Iterable[Table]) -> Manifest:
    """Write an archive under another name and give it its own when it is complete.

    Args:
        path: Where; an archive that is there is replaced.
        manifest: What it says of itself, without members.
        tables: What it holds; read once, in order.

    Raises:
        InvalidInputError: There is something else at ``path``, or nothing can be written there.
        StoreError: Vectors of one table have several sizes.
    """
    with _open_replacement(path) as file, ZipFile(file, "w") as archive:
        writer = _Writer(archive, path.parent)
        for name, blocks in tables:
            writer.table(name, blocks)
        complete = replace(manifest, members=writer.members)
        with archive.open(_make_entry(NAME, ZIP_DEFLATED), "w") as member:
            member.write(complete.to_bytes())
    return complete


@contextmanager
def _open_replacement(path: Path) -> Iterator[IO[bytes]]:
    """A private file that takes its place once it is complete, or goes."""
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}): choose another place"
        raise InvalidInputError(msg) from error
    try:
        with os.fdopen(number, "w+b") as file:
            yield file
            file.flush()
            os.fsync(number)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        msg = f"{path} cannot be written ({error.strerror}): choose another place"
        raise InvalidInputError(msg) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class _Writer:
    """Writes members one after the other, as a zip file wants them."""

    def __init__(self, archive: ZipFile, place: Path) -> None:
        """Write to ``archive``; vectors wait in ``place`` for their turn."""
        self._archive, self._place = archive, place
        self.members: dict[str, Member] = {}

    def table(self, name: str, blocks: Iterable[Sequence[Row]]) -> None:
        """Write the rows of a table, then their vectors."""
        with tempfile.TemporaryFile(dir=self._place) as waiting:
            vectors = _VectorBuffer(name, waiting)
            with self._member(f"{name}.jsonl", ZIP_DEFLATED) as member:
                for rows in blocks:
                    for row in rows:
                        member.write_row(_to_plain(row, vectors))
            if vectors.count:
                with self._member(f"{name}.npy", ZIP_STORED) as member:
                    vectors.write_to(member)

    @contextmanager
    def _member(self, name: str, compression: int) -> Iterator["_HashedMember"]:
        # No size is known yet, and one above 4 GiB is found out too late.
        with self._archive.open(_make_entry(name, compression), "w", force_zip64=True) as file:
            member = _HashedMember(file)
            yield member
        self.members[name] = member.to_member()


class _HashedMember:
    """A member that knows what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._sum = file, sha256()
        self._size, self.rows = 0, 0
        self._columns: tuple[str, ...] = ()

    def write(self, data: bytes) -> int:
        """Add bytes."""
        self._sum.update(data)
        self._size += len(data)
        return self._file.write(data)

    def write_row(self, row: Mapping[str, Any]) -> None:
        """Add a row."""
        self._columns = self._columns or tuple(row)
        self.rows += 1
        self.write(to_json(row, inf_nan_mode="constants") + b"\n")

    def to_member(self) -> Member:
        """What was written."""
        return Member(self.rows, self._size, self._sum.hexdigest(), self._columns)


class _VectorBuffer:
    """The vectors of a table, kept aside until its rows are written."""

    def __init__(self, table: str, file: IO[bytes]) -> None:
        self._table, self._file = table, file
        self.count, self._bytes = 0, 0

    def add(self, vector: bytes) -> int:
        """Keep one; its place among the others."""
        self._bytes = self._bytes or len(vector)
        if len(vector) != self._bytes:
            msg = f"the vectors of {self._table} have several sizes, so they cannot be archived"
            raise StoreError(msg)
        self._file.write(vector)
        self.count += 1
        return self.count - 1

    def write_to(self, member: _HashedMember) -> None:
        """Write them as numpy does."""
        shape = (self.count, self._bytes // NUMBER.itemsize)
        header = {"descr": NUMBER.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        self._file.seek(0)
        copyfileobj(self._file, member)
        member.rows = self.count


def _to_plain(row: Row, vectors: _VectorBuffer) -> dict[str, Any]:
    """A row of texts and numbers: a vector by its place, other bytes as text."""
    return {
        name: (vectors.add(value) if name == VECTORS else b64encode(value).decode())
        if isinstance(value, bytes)
        else value
        for name, value in row.items()
    }


def _make_entry(name: str, compression: int) -> ZipInfo:
    entry = ZipInfo(name)  # without the time, so that the same content is the same file
    entry.compress_type, entry.external_attr = compression, 0o600 << 16
    return entry
