"""Writes an archive, a zip file of JSON lines and a manifest, of a store in use."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.files import open_replacement
from crabpath_retrievers.parts.operation.transfer.archive_reader import (
    DOCUMENTS,
    MANIFEST_NAME,
    Manifest,
    is_archive,
)
from crabpath_retrievers.parts.operation.transfer.dump import Dump, TableRows, open_dump
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.journal import (
    NodeCollector,
    Row,
    encode_rows,
    translate_rows,
)

ArchiveTable = tuple[str, Iterable[Sequence[Row]]]
"""Name of a table, and its rows block by block."""


def _write_archive(path: Path, manifest: Manifest, tables: Iterable[ArchiveTable]) -> Manifest:
    """Write an archive to a temporary file, and rename it when it is complete.

    Args:
        path: Path of the archive; an existing archive is replaced.
        manifest: The manifest without row counts.
        tables: Tables to write; read once, in order.

    Returns:
        The manifest with its row counts.

    Raises:
        InvalidInputError: The path cannot be written.
    """
    rows: dict[str, int] = {}
    with open_replacement(path, str(path)) as file, ZipFile(file, "w") as archive:
        for name, blocks in tables:
            with _open_member(archive, f"{name}.jsonl") as member:
                rows[name] = _write_rows(member, blocks)
        complete = replace(manifest, rows=rows)
        with _open_member(archive, MANIFEST_NAME) as member:
            member.write(complete.to_bytes())
    return complete


def _open_member(archive: ZipFile, name: str) -> IO[bytes]:
    entry = ZipInfo(name)  # without time, so that equal content makes equal files
    entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o600 << 16
    # The size is not known yet, and may exceed 4 GiB.
    return archive.open(entry, "w", force_zip64=True)


def _write_rows(member: IO[bytes], blocks: Iterable[Sequence[Row]]) -> int:
    """Write rows as JSON lines; returns how many."""
    count = 0
    for rows in blocks:
        count += len(rows)
        member.writelines(encode_rows(row) + b"\n" for row in rows)
    return count


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
    """Write an archive; see :meth:`MemoryTransfer.export`."""
    path = Path(archive).expanduser()
    if os.path.exists(path) and not is_archive(path):  # noqa: PTH110  False without the right to look
        msg = f"{path} exists and is not an archive: choose another name, so that it is not lost"
        raise InvalidInputError(msg)
    with open_dump(store) as dump:
        embedder = dump.meta().get("embedder")
        if namespace is None:
            manifest = Manifest(namespace=None, embedder=embedder, last=dump.get_last_keys())
            tables: Iterable[ArchiveTable] = (
                (selection.name, dump.rows(selection)) for selection in dump.select_all()
            )
        else:
            manifest = Manifest(namespace=namespace, embedder=embedder, last={})
            tables = _read_namespace(dump, dump.select_namespace(namespace))
        written = _write_archive(path, manifest, tables)
    return ExportResult(path, namespace, dict(written.rows), path.stat().st_size)


def _read_namespace(dump: Dump, selections: Sequence[TableRows]) -> Iterator[ArchiveTable]:
    """Yield the tables of a namespace, then the ids of the nodes that their rows refer to."""
    asked = NodeCollector()
    for selection in selections:
        yield selection.name, _collect_nodes(selection.name, dump.rows(selection), asked)
    yield DOCUMENTS, [[{"key": key, "id": name} for key, name in dump.names(set(asked)).items()]]


def _collect_nodes(
    table: str, blocks: Iterable[list[Row]], asked: NodeCollector
) -> Iterator[list[Row]]:
    for rows in blocks:
        translate_rows(table, rows, asked)
        yield rows
