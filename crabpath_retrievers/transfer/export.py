"""Writes an archive: a zip file of JSON lines, vectors and a manifest.

Exports a store or a namespace, also while another process serves it.
"""

import os
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from pydantic_core import to_json

from crabpath_retrievers.core.changes.archive import Row
from crabpath_retrievers.errors import InvalidInputError, StoreError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.whole_store import Dump, TableRows
from crabpath_retrievers.storage.write.archive import NodeNames, find_nodes_in, translate_rows
from crabpath_retrievers.transfer.archive_reader import MANIFEST_NAME, Manifest, Member, is_archive
from crabpath_retrievers.transfer.archive_rows import VECTOR_COLUMN, VECTOR_DTYPE

ArchiveTable = tuple[str, Iterable[Sequence[Row]]]
"""Name of a table, and its rows block by block."""


def write_archive(path: Path, manifest: Manifest, tables: Iterable[ArchiveTable]) -> Manifest:
    """Write an archive to a temporary file, and rename it when it is complete.

    Args:
        path: Path of the archive; an existing archive is replaced.
        manifest: The manifest without members.
        tables: Tables to write; read once, in order.

    Returns:
        The manifest with its members.

    Raises:
        InvalidInputError: The path cannot be written.
        StoreError: The vectors of a table have different dimensions.
    """
    with _open_replacement(path) as file, ZipFile(file, "w") as archive:
        writer = _Writer(archive, path.parent)
        for name, blocks in tables:
            writer.table(name, blocks)
        complete = replace(manifest, members=writer.members)
        with archive.open(_make_entry(MANIFEST_NAME, ZIP_DEFLATED), "w") as member:
            member.write(complete.to_bytes())
    return complete


@contextmanager
def _open_replacement(path: Path) -> Iterator[IO[bytes]]:
    """Open a private temporary file that replaces ``path`` on success and is deleted on errors."""
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror}): choose another path"
        raise InvalidInputError(msg) from error
    try:
        with os.fdopen(number, "w+b") as file:
            yield file
            file.flush()
            os.fsync(number)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        msg = f"{path} cannot be written ({error.strerror}): choose another path"
        raise InvalidInputError(msg) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class _Writer:
    """Writes the members of an archive one after the other."""

    def __init__(self, archive: ZipFile, place: Path) -> None:
        """Write to ``archive``; vectors are buffered in a file in the folder ``place``."""
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
        # The size is not known yet, and may exceed 4 GiB.
        with self._archive.open(_make_entry(name, compression), "w", force_zip64=True) as file:
            member = _HashedMember(file)
            yield member
        self.members[name] = member.to_member()


class _HashedMember:
    """A member that counts and hashes what is written to it."""

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
        """Return the description of the member for the manifest."""
        return Member(self.rows, self._size, self._sum.hexdigest(), self._columns)


class _VectorBuffer:
    """Buffers the vectors of a table in a file until its rows are written."""

    def __init__(self, table: str, file: IO[bytes]) -> None:
        self._table, self._file = table, file
        self.count, self._bytes = 0, 0

    def add(self, vector: bytes) -> int:
        """Add a vector, and return its index."""
        self._bytes = self._bytes or len(vector)
        if len(vector) != self._bytes:
            msg = f"the vectors of {self._table} differ in dimension, so they cannot be exported"
            raise StoreError(msg)
        self._file.write(vector)
        self.count += 1
        return self.count - 1

    def write_to(self, member: _HashedMember) -> None:
        """Write the vectors as a numpy array of shape ``[count, dimension]``."""
        shape = (self.count, self._bytes // VECTOR_DTYPE.itemsize)
        header = {"descr": VECTOR_DTYPE.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        self._file.seek(0)
        copyfileobj(self._file, member)
        member.rows = self.count


def _to_plain(row: Row, vectors: _VectorBuffer) -> dict[str, Any]:
    """Convert a row to JSON values: a vector to its index, other bytes to base64."""
    return {
        name: (vectors.add(value) if name == VECTOR_COLUMN else b64encode(value).decode())
        if isinstance(value, bytes)
        else value
        for name, value in row.items()
    }


def _make_entry(name: str, compression: int) -> ZipInfo:
    entry = ZipInfo(name)  # without time, so that equal content makes equal files
    entry.compress_type, entry.external_attr = compression, 0o600 << 16
    return entry


class ExportResult(NamedTuple):
    """Result of an export.

    Attributes:
        path: Path of the archive.
        namespace: The exported namespace; None for the whole store.
        rows: Number of rows by table.
        size: Size of the file, in bytes.
    """

    path: Path
    namespace: str | None
    rows: dict[str, int]
    size: int


def export_archive(
    store: GraphStore, archive: str | Path, namespace: str | None = None
) -> ExportResult:
    """Write an archive; see :meth:`CrabPath.export`."""
    path = Path(archive).expanduser()
    if path.exists() and not is_archive(path):
        msg = f"{path} exists and is not an archive: choose another name, so that it is not lost"
        raise InvalidInputError(msg)
    with store.open_dump() as dump:
        meta = dump.meta()
        whole = namespace is None
        manifest = Manifest(
            namespace=namespace,
            embedder=meta.get("embedder"),
            last=dump.get_last_keys() if whole else {},
        )
        tables = _dump_store(dump) if namespace is None else _dump_namespace(dump, namespace)
        written = write_archive(path, manifest, tables)
    return ExportResult(path, namespace, written.rows, path.stat().st_size)


def _dump_store(dump: Dump) -> Iterator[ArchiveTable]:
    for selection in dump.select_all():
        yield selection.name, dump.rows(selection)


def _dump_namespace(dump: Dump, namespace: str) -> Iterator[ArchiveTable]:
    for selection in dump.select_namespace(namespace):
        yield selection.name, _translate_rows(dump, selection)


def _translate_rows(dump: Dump, selection: TableRows) -> Iterator[list[Row]]:
    for rows in dump.rows(selection):
        block = (selection.name, rows)
        naming = NodeNames(dump.names(find_nodes_in(block, int)), int)
        yield list(translate_rows(block, naming))
