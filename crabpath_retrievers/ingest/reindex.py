"""Brings the vector index in line with the graph store, which keeps every vector itself."""

import logging
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from crabpath_retrievers.core.calls import elapsed_ms
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError
from crabpath_retrievers.ingest.pipeline import STAMP, Ingest, Progress
from crabpath_retrievers.retrieval.episodes import EpisodeMemory, NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.nodes import queue_reindex
from crabpath_retrievers.vectors.base import VectorIndex, find_differing

SAMPLE_SIZE = 64
"""Chunks that are looked up in the index when a memory is opened."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reindexer:
    """Fills an index that is new, was set aside, or has lost entries.

    If it is interrupted, the next open finishes the work, as after any ingest.
    """

    store: GraphStore
    index: VectorIndex
    ingest: Ingest
    episodes: EpisodeMemory
    notes: NoteMemory
    progress: Progress | None = None

    def check(self) -> None:
        """Check a sample of chunks, and fill an index that has lost entries.

        The cost of the check does not grow with the corpus. An empty embedded index is filled. An
        empty remote one is refused: the URL or the collection name may be wrong. An index that
        cannot count and find its entries quickly is not checked.

        Raises:
            ConfigurationError: A remote index is empty, or the index holds other documents.
            InvalidInputError: The graph store is empty, but the index is not.
        """
        catalog = self.store.catalog
        some = catalog.some_chunk_ids(SAMPLE_SIZE)
        if (found := self.index.count_and_find(some)) is None:
            return
        count, held = found
        unfinished = catalog.has_unfinished_ingest()
        self.require_own(count, some, held)
        nodes = int(catalog.meta().get("nodes", 0))
        if some and not held:
            self._require_fillable(nodes)
            self.fill()
            return
        if some and not self._is_of_one_moment():
            self._compare()
            count, held = self.index.count_and_find(some) or (count, held)
        if len(held) < len(some) or (count < nodes and not unfinished):
            self._complete()
        elif some and count > nodes and not unfinished:
            _log.warning(
                "%d vectors in %s belong to no document: `crabpath reindex` removes them",
                count - nodes,
                self.index.description,
            )

    def catch_up(self) -> None:
        """Index the vectors of documents, episodes and notes that are queued."""
        self.ingest.recover(self.progress)
        self.episodes.catch_up()
        self.notes.catch_up()

    def fill(self, ids: tuple[str, ...] | None = None) -> None:
        """Index the vectors of these chunks again; None for everything."""
        begun = time.perf_counter()
        self.store.write(queue_reindex, ids)
        self.catch_up()
        waiting = self.store.catalog.count_unindexed()
        if waiting:
            _log.warning("an ingest is under way: it indexes the vectors that are missing")
            return
        _log.info("vectors indexed again in %.0f ms", elapsed_ms(begun))

    def _complete(self) -> None:
        ids = self.store.catalog.chunk_ids()
        held = self.index.find_existing(ids) or ()
        missing = tuple(node_id for node_id in ids if node_id not in held)
        if missing:
            _log.warning(
                "%d of %d vectors are missing in %s: they are indexed again from the graph store",
                len(missing),
                len(ids),
                self.index.description,
            )
            self.fill(missing)

    def _is_of_one_moment(self) -> bool:
        """Whether graph store and index have the stamp of the same ingest."""
        index = self.index
        if index.foreign or index.removal:
            return True
        return self.store.catalog.meta().get(STAMP) == index.read_stamp()

    def _compare(self) -> None:
        """Compare all vectors with those of the graph store, and index those that differ again.

        On a server, differences are only reported: the graph store may be the wrong one.
        """
        with self.store.hold_ingest_lock(wait=False) as is_held:
            if not is_held or self._is_of_one_moment():  # another process ingests, or did
                return
            others = tuple(find_differing(self.store.catalog, self.index.read_vectors))
            mends = self.index.local
            if others:
                _log.warning(
                    "%d vectors in %s are not of the same moment as %s (was one of them restored "
                    "from a backup?): %s",
                    len(others),
                    self.index.description,
                    self.store.name,
                    "they are indexed again from the graph store"
                    if mends
                    else "`crabpath reindex` indexes them again",
                )
            if others and mends:
                self.fill(others)
            if mends or not others:
                self.ingest.stamp()

    def _require_fillable(self, nodes: int) -> None:
        """Refuse to fill an empty remote index: it may be the wrong one."""
        if not self.index.local:
            msg = (
                f"the collection of {self.index.description} is empty, and the memory holds "
                f"{nodes} chunks: check the URL and the name of the collection; where they are "
                "right, fill it with `crabpath reindex`, or CrabPath.open(..., reindex=True)"
            )
            raise ConfigurationError(msg)
        if not self.index.generation:
            _log.warning(
                "all %d vectors are missing in %s: they are indexed again from the graph store",
                nodes,
                self.index.description,
            )

    def require_own(self, count: int, some: Sequence[str], held: AbstractSet[str]) -> None:
        """Refuse an index that holds vectors, but none of this memory."""
        place = self.index.description
        if count and some and not held:
            msg = (
                f"{place} holds {count} vectors, but none of this memory: check the "
                "path or URL of its vectors; or index them in an empty directory or collection "
                "with `crabpath reindex PATH --vectors DIRECTORY_OR_URL`"
            )
            raise ConfigurationError(msg)
        catalog = self.store.catalog
        # Asked again: another process may have published its first documents meanwhile.
        if (
            count
            and not some
            and not (catalog.has_unfinished_ingest() or catalog.some_chunk_ids(2))
        ):
            msg = (
                f"{place} holds {count} vectors already, but {self.store.name} holds "
                "no documents: check both; restore the database from a backup if it was lost, or "
                "choose an empty directory or collection for the vectors of a new memory"
            )
            raise InvalidInputError(msg)
