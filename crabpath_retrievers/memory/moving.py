"""What a memory holds, and what its namespaces have learned, moved from one place to another."""

from pathlib import Path

from crabpath_retrievers.archive.choosing import chosen
from crabpath_retrievers.archive.exporting import Exported, export
from crabpath_retrievers.archive.importing import Imported, fill_namespace, fill_store
from crabpath_retrievers.archive.reading import Archive, opened
from crabpath_retrievers.changes.archive import FillStore, IndexAgain
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.query import namespace_of, path_of, require_flags
from crabpath_retrievers.storage.dump import Dump


class Moving(Parts):
    """How a memory is archived and filled from an archive, or from another store."""

    def export(self, archive: str | Path, *, namespace: str | None = None) -> Exported:
        """Write all that this memory holds, or what one namespace has learned, into one file.

        The file is a zip of JSON lines, vectors and a manifest with their check sums, readable by
        its user alone. It shows one moment, whoever asks and learns meanwhile. Snapshots travel
        with a whole store, not with a namespace.

        Args:
            archive: Where; an archive that is there is replaced once the new one is complete.
            namespace: Whose; None for everything.

        Raises:
            NotFoundError: There is no such namespace.
            InvalidInputError: There is another file, or nothing can be written there.
        """
        self._require_open()
        path = path_of("archive", archive)
        return export(self.store, path, None if namespace is None else namespace_of(namespace))

    def import_archive(
        self,
        archive: str | Path,
        *,
        namespace: str | None = None,
        rename: str | None = None,
        replace: bool = False,
    ) -> Imported:
        """Take over a whole store, or what a namespace has learned elsewhere.

        The archive is checked first; then all of it is written in one transaction. Of a whole
        store the vectors are indexed after that; what interrupts this is made up for by the next
        open. A namespace goes by the ids of documents: what it has learned about others than
        those of this memory is left out, and counted.

        Args:
            archive: What :meth:`export` has written.
            namespace: Which of the namespaces in the archive of a whole store; None for all of the
                store, which needs an empty memory.
            rename: Its name here; None keeps it.
            replace: Forget what the namespace has asked, learned and been taught here so far.

        Raises:
            InvalidInputError: It is no archive, damaged, or does not hold the namespace; the memory
                is not empty; or the namespace has learned here already. Nothing was changed.
            SchemaVersionError: A newer release has written it.
            EmbeddingMismatchError: This memory was built with another embedder.
        """
        self._require_open()
        require_flags(replace=replace)
        wanted = None if namespace is None else namespace_of(namespace)
        with opened(path_of("archive", archive)) as checked, self.store.ingesting():
            found = chosen(checked, wanted)
            if found is not None:
                name = found if rename is None else namespace_of(rename)
                return self._take_over(checked, found, name, replace=replace)
            if rename is not None or replace:
                msg = "this is the archive of a whole store: say which namespace of it is meant"
                raise InvalidInputError(msg)
            manifest = checked.manifest
            fill = FillStore(checked.blocks(), manifest.last, manifest.digest)
            return self._fill(fill, manifest.rows)

    def reindex(self) -> int:
        """Have the vector index hold all that the store does, because it is another one now.

        What interrupts this is made up for by the next open.

        Returns:
            How many vectors of documents it holds; -1 where it does not say.

        Raises:
            StoreError: A store failed.
        """
        self._require_open()
        with self.store.ingesting():
            self.store.apply([IndexAgain()])
            self._index_all()
        return self.index.count()

    def copy_from(self, dump: Dump, origin: str) -> Imported:
        """Take over all that another store holds; see :func:`crabpath_retrievers.migrate`.

        Args:
            dump: The other store as it is at one moment.
            origin: Tells it from others: what came from there before is not copied again.

        Raises:
            InvalidInputError: This memory is not empty.
        """
        whole = dump.everything()
        with self.store.ingesting():
            fill = FillStore(dump.blocks(whole), dump.last(), origin)
            return self._fill(fill, dump.counts(whole))

    def _fill(self, fill: FillStore, rows: dict[str, int]) -> Imported:
        # After an interruption the index may hold some of what comes.
        again = self.store.catalog.meta().get("origin") == fill.origin
        if not again and (held := self.index.count()) > 0:
            msg = f"{self.index.description} holds {held} vectors already: choose an empty place"
            raise InvalidInputError(msg)
        found = fill_store(self.store, fill, rows)
        self._index_all()
        return found

    def _index_all(self) -> None:
        """Have the index hold all that the store does."""
        self._ingest.recover()
        self._episodes.catch_up()
        self._notes.catch_up()

    def _take_over(self, archive: Archive, former: str, name: str, *, replace: bool) -> Imported:
        self.store.settle()
        before = self.store.walk.clock(name)
        found = fill_namespace(self.store, archive, former, name, replace=replace)
        self._forget_vectors(before)
        self._episodes.catch_up()
        self._notes.catch_up()
        return found
