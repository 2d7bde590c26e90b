"""Writes an archive, a zip file of JSON lines and a manifest, from one state of a store."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import sqlalchemy as sa

from crabpath_retrievers.errors import InvalidInputError, NotFoundError, StoreError
from crabpath_retrievers.parts.files import open_replacement
from crabpath_retrievers.parts.operation.rows import (
    NodeCollector,
    Row,
    encode_rows,
    translate_rows,
)
from crabpath_retrievers.parts.operation.transfer.archive import (
    DOCUMENTS,
    EXPORTED,
    LOCAL_META,
    MANIFEST_NAME,
    Block,
    Manifest,
    is_archive,
)
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import TABLES, find_own_rows
from crabpath_retrievers.storage.sql_tools import select_in

_AT_ONCE = 1000  # rows in memory


class Dump:
    """One consistent state of a store, read table by table in blocks of rows."""

    def __init__(self, connection: sa.Connection) -> None:
        """Keep a connection, on which all statements see one state of the store."""
        self._connection = connection

    def require_finished(self) -> None:
        """Refuse a store with an unfinished ingest."""
        # Work for the vector index does not matter: a copy fills an index of its own.
        waits = sa.exists(sa.select(s.staging.c.id).where(s.staging.c.operation != "index"))
        if self._connection.scalar(sa.select(waits)):
            msg = "documents are half added: open the memory once, which finishes it, and try again"
            raise StoreError(msg)

    def meta(self) -> dict[str, str]:
        """Metadata of the store by name."""
        return {name: value for name, value in self._connection.execute(sa.select(s.meta))}

    def select_all(self) -> dict[str, sa.ColumnElement[bool]]:
        """Select all rows of all tables: a condition on the rows by name of the table."""
        own = s.meta.c.name.not_in(LOCAL_META)
        return {name: own if t is s.meta else sa.true() for name, t in EXPORTED.items()}

    def select_namespace(self, name: str) -> dict[str, sa.ColumnElement[bool]]:
        """Select all rows of one namespace, each table before those that refer to it."""
        key = self._connection.scalar(
            sa.select(s.namespaces.c.key).where(s.namespaces.c.name == name)
        )
        if key is None:
            msg = f"namespace {name!r} has neither asked nor learned anything: check its name"
            raise NotFoundError(msg)
        return find_own_rows(key, name)

    def counts(self) -> dict[str, int]:
        """Number of all rows by table."""
        found = {}
        for name, where in self.select_all().items():
            query = sa.select(sa.func.count()).select_from(TABLES[name]).where(where)
            found[name] = self._connection.scalar(query) or 0
        return found

    def rows(self, name: str, where: sa.ColumnElement[bool]) -> Iterator[list[Row]]:
        """Yield the rows of a table in blocks, in order of the primary key.

        ``where`` is the condition on the rows.
        """
        table = TABLES[name]
        query = sa.select(table).where(where).order_by(*table.primary_key.columns)
        streamed = query.execution_options(yield_per=_AT_ONCE)
        with self._connection.execute(streamed) as result:
            # Plain strings: serialisation of SQLAlchemy's quoted names is seven times slower.
            names = [str(column.name) for column in table.c]
            for block in result.partitions(_AT_ONCE):
                yield [dict(zip(names, row, strict=True)) for row in block]

    def blocks(self) -> Iterator[Block]:
        """Yield blocks of all rows, table by table."""
        for name, where in self.select_all().items():
            for rows in self.rows(name, where):
                yield name, rows

    def names(self, keys: set[int]) -> dict[int, str]:
        """Ids of nodes by key."""
        query = sa.select(s.nodes.c.key, s.nodes.c.id)
        rows = select_in(self._connection, query, s.nodes.c.key, sorted(keys))
        return {key: name for key, name in rows}

    def get_last_keys(self) -> dict[str, int]:
        """Highest key that each table with generated keys has assigned, also to deleted rows."""
        found = {}
        for name, table in EXPORTED.items():
            key = table.autoincrement_column
            if key is not None:
                highest = self._connection.scalar(sa.select(sa.func.max(key))) or 0
                found[name] = max(highest, self._last_assigned_key(table))
        return found

    def _last_assigned_key(self, table: sa.Table) -> int:
        """The highest key that the database has assigned; 0 before the first."""
        if self._connection.dialect.name == "sqlite":
            query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name")
            return self._connection.scalar(query, {"name": table.name}) or 0
        column = table.autoincrement_column
        assert column is not None  # noqa: S101  checked by the caller
        sequence = self._connection.scalar(
            sa.select(sa.func.pg_get_serial_sequence(table.name, column.name))
        )
        given = sa.text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")
        return self._connection.scalar(given) or 0


@contextmanager
def open_dump(store: GraphStore) -> Iterator[Dump]:
    """Open one consistent state of a store, which later changes do not affect."""
    with store.open_snapshot() as connection:
        dump = Dump(connection)
        dump.require_finished()
        yield dump


ArchiveTable = tuple[str, Iterable[Sequence[Row]]]
"""Name of a table, and its rows block by block."""


def _write_archive(path: Path, manifest: Manifest, tables: Iterable[ArchiveTable]) -> Manifest:
    """Write an archive to a temporary file, and rename it when it is complete.

    The tables are read once, in order.

    Returns:
        The manifest, with the row counts that the given one lacks.
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
    """Write rows as JSON lines into a member of the archive; return how many."""
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
                (name, dump.rows(name, where)) for name, where in dump.select_all().items()
            )
        else:
            manifest = Manifest(namespace=namespace, embedder=embedder, last={})
            tables = _read_namespace(dump, dump.select_namespace(namespace))
        written = _write_archive(path, manifest, tables)
    return ExportResult(path, namespace, dict(written.rows), path.stat().st_size)


def _read_namespace(
    dump: Dump, selected: Mapping[str, sa.ColumnElement[bool]]
) -> Iterator[ArchiveTable]:
    """Yield the tables of a namespace, and last the ids of the nodes that their rows refer to.

    ``selected`` has the condition on the rows of each table.
    """
    asked = NodeCollector()
    for name, where in selected.items():
        yield name, _collect_nodes(name, dump.rows(name, where), asked)
    yield DOCUMENTS, [[{"key": key, "id": name} for key, name in dump.names(set(asked)).items()]]


def _collect_nodes(
    table: str, blocks: Iterable[list[Row]], asked: NodeCollector
) -> Iterator[list[Row]]:
    for rows in blocks:
        translate_rows(table, rows, asked)
        yield rows
