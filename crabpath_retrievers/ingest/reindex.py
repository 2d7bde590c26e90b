"""Brings the vector index in line with the graph store, which keeps every vector itself."""

import logging
import time
from dataclasses import dataclass
from typing import Any

from crabpath_retrievers.core.changes.archive import QueueReindex
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError
from crabpath_retrievers.ingest.pipeline import Ingest, Progress
from crabpath_retrievers.retrieval.episodes import EpisodeMemory
from crabpath_retrievers.retrieval.notes import NoteMemory
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.base import VectorIndex

_SAMPLE_SIZE = 64  # chunks that are looked up in the index when a memory is opened
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
        empty remote one is refused: the URL or the collection name may be wrong. Indexes without
        a ``glance`` method are not checked.

        Raises:
            ConfigurationError: A remote index is empty, or the index holds other documents.
            InvalidInputError: The graph store is empty, but the index is not.
        """
        glance = getattr(self.index, "glance", None)
        if glance is None:
            return
        catalog = self.store.catalog
        some = catalog.some_chunk_ids(_SAMPLE_SIZE)
        count, held = glance(some)
        unfinished = catalog.has_unfinished_ingest()
        if not some:
            if count and not unfinished:
                raise InvalidInputError(self._describe_missing_graph(count))
            return
        nodes = int(catalog.meta().get("nodes", 0))
        if not held:
            self._require_fillable(count, nodes)
            self._fill(None)
        elif len(held) < len(some) or (count < nodes and not unfinished):
            self._complete()
        elif count > nodes and not unfinished:
            _log.warning(
                "%d vectors in %s belong to no document: `crabpath reindex` removes them",
                count - nodes,
                self.index.description,
            )

    def refill(self) -> None:
        """Fill an index that was set aside while it was in use."""
        self._fill(None)

    def reindex_all(self) -> None:
        """Index all vectors again, and delete those that belong to no node.

        Raises:
            ConfigurationError: The index holds vectors, but none of this memory.
        """
        with self.store.hold_ingest_lock():
            self._require_own()
            if inspect := getattr(self.index, "inspect", None):
                inspect()
            self._fill(None)
            if hasattr(self.index, "glance"):
                self._delete_surplus()

    def _fill(self, ids: tuple[str, ...] | None) -> None:
        begun = time.monotonic()
        self.store.apply([QueueReindex(ids)])
        self.ingest.recover(self.progress)
        self.episodes.catch_up()
        self.notes.catch_up()
        if self.store.catalog.count_unindexed():
            _log.warning("an ingest is under way: it indexes the vectors that are missing")
            return
        _log.info("vectors indexed again in %.0f ms", 1000 * (time.monotonic() - begun))

    def _complete(self) -> None:
        ids = self.store.catalog.chunk_ids()
        held = self.index.find_existing(ids)  # type: ignore[attr-defined]
        missing = tuple(node_id for node_id in ids if node_id not in held)
        if missing:
            _log.warning(
                "%d of %d vectors are missing in %s: they are indexed again from the graph store",
                len(missing),
                len(ids),
                self.index.description,
            )
            self._fill(missing)

    def _require_fillable(self, count: int, nodes: int) -> None:
        if count:
            raise ConfigurationError(self._describe_foreign_vectors(count))
        if not getattr(self.index, "local", False):
            msg = (
                f"the collection of {self.index.description} is empty, and the memory holds "
                f"{nodes} chunks: check the URL and the name of the collection; where they are "
                "right, fill it with `crabpath reindex`, or CrabPath.open(..., reindex=True)"
            )
            raise ConfigurationError(msg)
        if not getattr(self.index, "generation", 0):
            _log.warning(
                "all %d vectors are missing in %s: they are indexed again from the graph store",
                nodes,
                self.index.description,
            )

    def _require_own(self) -> None:
        glance = getattr(self.index, "glance", None)
        some = self.store.catalog.some_chunk_ids(_SAMPLE_SIZE)
        count, held = glance(some) if glance else (0, set())
        if count and some and not held:
            raise ConfigurationError(self._describe_foreign_vectors(count))
        if count and not some and not self.store.catalog.has_unfinished_ingest():
            raise InvalidInputError(self._describe_missing_graph(count))

    def _describe_foreign_vectors(self, count: int) -> str:
        return (
            f"{self.index.description} holds {count} vectors, but none of this memory: check the "
            "path or URL of its vectors; or index them in an empty directory or collection with "
            "`crabpath reindex PATH --vectors DIRECTORY_OR_URL`"
        )

    def _describe_missing_graph(self, count: int) -> str:
        return (
            f"{self.index.description} holds {count} vectors already, but {self.store.name} holds "
            "no documents: check both; restore the database from a backup if it was lost, or "
            "choose an empty directory or collection for the vectors of a new memory"
        )

    def _delete_surplus(self) -> None:
        index: Any = self.index
        # List the index first: nodes added meanwhile are in the graph store before the index.
        held = [one for part in index.ids() for one in part]
        wanted = set(self.store.catalog.chunk_ids())
        index.delete([one for one in held if one not in wanted])
        for name in index.names_beside():
            kind, _, key = name.partition("-")
            beside = index.beside(name)
            held = [one for part in beside.ids() for one in part]
            reads = self.store.learned.episode_ids if kind == "episodes" else self.store.notes.ids
            wanted = set(reads(int(key)))
            beside.delete([one for one in held if one not in wanted])
