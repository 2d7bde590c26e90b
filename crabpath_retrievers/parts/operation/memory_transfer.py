"""``memory.transfer``: archives of a memory or of one namespace, and copies of whole stores."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from crabpath_retrievers.core.calls import AsyncView, off_loop
from crabpath_retrievers.core.query import parse_namespace, parse_path, require_flags
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import MemoryPart
from crabpath_retrievers.parts.operation.transfer.archive import Archive, Block, open_archive
from crabpath_retrievers.parts.operation.transfer.export import Dump, ExportResult, export_archive
from crabpath_retrievers.parts.operation.transfer.fill import (
    ImportResult,
    fill_namespace,
    import_store,
    select_namespace,
)


class MemoryTransfer(MemoryPart):
    """Export a memory or a namespace into an archive, and import it elsewhere."""

    def export(self, archive: str | Path, *, namespace: str | None = None) -> ExportResult:
        """Write the whole memory, or what one namespace has learned, into one file.

        The file is a zip of JSON lines and a manifest, readable by its owner only. It is consistent
        at one moment, whatever is written meanwhile. Snapshots are exported with a whole store, not
        with a namespace.

        Args:
            archive: Path of the file; an existing archive is replaced once the new one is complete.
            namespace: The namespace to export; None for the whole memory.

        Raises:
            NotFoundError: There is no such namespace.
            InvalidInputError: The path holds another file, or cannot be written.
        """
        services = self._services
        path = parse_path("archive", archive)
        return export_archive(
            services.store, path, None if namespace is None else parse_namespace(namespace)
        )

    def import_archive(
        self,
        archive: str | Path,
        *,
        namespace: str | None = None,
        rename: str | None = None,
        replace: bool = False,
    ) -> ImportResult:
        """Import a whole memory into an empty one, or what a namespace has learned elsewhere.

        The archive is checked first; then all of it is written in one transaction. The vectors of
        a whole memory are indexed after that; if this is interrupted, the next open finishes it. A
        namespace is matched by document ids: what it has learned about documents that this memory
        does not hold is left out, and counted.

        Args:
            archive: A file that :meth:`export` has written.
            namespace: The namespace to import from the archive of a whole memory; None for all of
                it.
            rename: New name of the namespace; None keeps its name.
            replace: First delete what the namespace has asked and learned here so far.

        Raises:
            InvalidInputError: The file is not an archive, is damaged, or does not hold the
                namespace; the memory is not empty; or the namespace exists here already. Nothing
                was changed.
            SchemaVersionError: It was written by a newer release.
            EmbeddingMismatchError: This memory was built with another embedder.
        """
        require_flags(replace=replace)
        wanted = None if namespace is None else parse_namespace(namespace)
        with (
            open_archive(parse_path("archive", archive)) as checked,
            self._services.store.hold_ingest_lock(),
        ):
            chosen_name = select_namespace(checked, wanted)
            if chosen_name is not None:
                name = chosen_name if rename is None else parse_namespace(rename)
                return self._import_namespace(checked, chosen_name, name, replace=replace)
            if rename is not None or replace:
                msg = "this is the archive of a whole store: say which namespace of it is meant"
                raise InvalidInputError(msg)
            manifest = checked.manifest
            return self._fill(checked.blocks(), manifest.last, manifest.digest)

    def copy_from(self, dump: Dump, origin: str) -> ImportResult:
        """Copy everything of another store; called by :func:`crabpath_retrievers.migrate`.

        Args:
            dump: The other store at one moment.
            origin: Identifies the other store: a copy from it that is complete is not repeated.

        Raises:
            InvalidInputError: This memory is not empty.
        """
        with self._services.store.hold_ingest_lock():
            return self._fill(dump.blocks(), dump.get_last_keys(), origin)

    def _fill(self, blocks: Iterable[Block], last: Mapping[str, int], origin: str) -> ImportResult:
        services = self._services
        # After an interruption the index may hold some of the vectors already.
        resumed = services.store.catalog.meta().get("origin") == origin
        if not resumed and (held := services.index.count()) > 0:
            place = services.index.description
            msg = f"{place} holds {held} vectors already: choose an empty place"
            raise InvalidInputError(msg)
        imported = ImportResult(None, {}, before=True)
        if not resumed:
            imported = services.store.write(import_store, blocks, last, origin)
            services.store.forget_scale()
        services.reindexing.catch_up()
        services.store.refresh_statistics()
        return imported

    def _import_namespace(
        self, archive: Archive, former: str, name: str, *, replace: bool
    ) -> ImportResult:
        services = self._services
        services.store.flush()
        before = services.store.walk.get_clock(name)
        imported = fill_namespace(services.store, archive, former, name, replace=replace)
        services.delete_namespace_vectors(before)
        services.reindexing.catch_up()
        return imported


class AsyncMemoryTransfer(AsyncView[MemoryTransfer]):
    """``memory.aio.transfer``: :class:`MemoryTransfer`, awaited."""

    export = off_loop(MemoryTransfer.export, slow=True)
    import_archive = off_loop(MemoryTransfer.import_archive, slow=True)
