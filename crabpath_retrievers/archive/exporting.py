"""Exports a store or a namespace, also while another process serves it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.archive.manifest import Manifest
from crabpath_retrievers.archive.reading import is_archive
from crabpath_retrievers.archive.writing import ArchiveTable, write_archive
from crabpath_retrievers.changes.archive import Row
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.dump import Dump, TableRows
from crabpath_retrievers.storage.portable import NodeNames, find_nodes_in, translate_rows


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
    """Write an archive; see :meth:`CrabPath.export_archive`."""
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
        naming = NodeNames.for_export(dump.names(find_nodes_in(block, int)))
        yield list(translate_rows(block, naming))
