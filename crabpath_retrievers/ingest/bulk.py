"""Bulk ingest: documents are published in large batches, and linked when all of them are there.

A new chunk is linked by what it shares with the whole corpus, which is complete only at the end.
Two passes find each edge once, and none that a later chunk parts again. Finding only reads, in any
order and in several processes.

Both passes can be killed at any point. The first chunk of an unfinished bulk ingest is kept in the
metadata of the store: until it has ended, what it published is found by search but not linked, and
the next ingest goes on with it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.core.changes import (
    BuildIndexes,
    Change,
    DeferIndexes,
    MarkIndexed,
    PublishNodes,
    PutEdges,
    PutMeta,
    QueueLinking,
)
from crabpath_retrievers.core.graph import Edge, EdgeKind, Node
from crabpath_retrievers.core.progress import elapsed_ms
from crabpath_retrievers.core.text import IndexedWords
from crabpath_retrievers.ingest.linkers import FoundPairs, Linker, PairLinker
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.links import LinkQueries, RememberedLinks
from crabpath_retrievers.vectors.base import VectorIndex

_log = logging.getLogger(__name__)

MIN_BULK_CHUNKS = 10_000
"""New chunks from which ``add_documents`` is done in two passes; ``ingest`` always is."""

PUBLISHED_AT_ONCE = 1024
"""Chunks of one transaction."""

_LINKED_AT_ONCE = 1024
UNFINISHED_SINCE = "bulk_since"
"""Name of the key of the first chunk of an unfinished bulk ingest, among the facts of a store."""

Words = Mapping[str, IndexedWords]
"""Words of chunks by digest, as far as they are known."""


class PairFinder(NamedTuple):
    """Finds what chunks may be linked with; reads only, so any process can do it.

    Attributes:
        store: Reads of the linkers.
        linkers: Those that find pairs.
        before: As for :meth:`PairLinker.find`.
    """

    store: LinkQueries
    linkers: tuple[PairLinker, ...]
    before: int

    def find(self, keys: list[int]) -> list[FoundPairs]:
        """Find the pairs of chunks, for each linker."""
        nodes = sorted(self.store.nodes(keys))
        return [linker.find(nodes, self.store, self.before) for linker in self.linkers]


FindAll = Callable[[PairFinder, Iterable[list[int]]], Iterator[list[FoundPairs]]]
"""Finds the pairs of parts of the keys, and yields them in the order of the parts."""


def find_here(finder: PairFinder, parts: Iterable[list[int]]) -> Iterator[list[FoundPairs]]:
    """Find the pairs in this thread."""
    return map(finder.find, parts)


@dataclass(frozen=True, slots=True)
class BulkIngest:
    """Publishes large batches, and links them afterwards; the caller holds the ingest lock."""

    store: GraphStore
    index: VectorIndex
    linkers: tuple[Linker, ...]

    @property
    def since(self) -> int | None:
        """Key of the first chunk of an unfinished bulk ingest; None without one."""
        found = self.store.catalog.meta().get(UNFINISHED_SINCE)
        return int(found) if found else None

    def publish(self, nodes: Sequence[Node], removed: Sequence[str], words: Words) -> None:
        """Publish a batch of whole documents with their vectors, in the order of the nodes."""
        known = tuple(
            words.get(node.digest)
            or IndexedWords.from_text(node.title, node.content, self.store.language)
            for node in nodes
        )
        in_database = bool(self.index.removal)
        vectors = self._write_vectors(nodes) if in_database else ()  # creates their table
        self._begin()
        freed = self.queue_freed([*removed, *(node.id for node in nodes)])
        published = PublishNodes(tuple(nodes), known, tuple(removed), in_database)
        self.store.apply([*freed, published, *vectors, *self.index.removal])
        if not in_database:
            self._write_vectors(nodes)
            self.store.apply([MarkIndexed(tuple(node.id for node in nodes))])

    def find_freed(self, leaving: Sequence[str]) -> set[int]:
        """Return the nodes to link again once others leave, or get other texts, given by id."""
        links = self.store.links
        keys = sorted(links.keys(leaving).values())
        of_pairs = (linker for linker in self.linkers if isinstance(linker, PairLinker))
        found = [linker.find_freed(keys, links) for linker in of_pairs] if keys else ()
        return set[int]().union(*found).difference(keys)

    def queue_freed(self, leaving: Sequence[str]) -> tuple[Change, ...]:
        """Return what queues these nodes for linking in the transaction that follows."""
        ids = self.store.links.ids(sorted(self.find_freed(leaving))).values()
        return (QueueLinking(tuple(ids)),) if ids else ()

    def _begin(self) -> None:
        """Begin a bulk ingest, unless one is unfinished."""
        if self.since is None:
            last = self.store.catalog.get_last_key()
            deferred = () if last else (DeferIndexes(),)
            self.store.apply([PutMeta(((UNFINISHED_SINCE, str(last + 1)),)), *deferred])

    def _write_vectors(self, nodes: Sequence[Node]) -> tuple[Change, ...]:
        return self.index.prepare_upsert(
            [node.id for node in nodes],
            [np.asarray(node.vector, dtype=np.float32) for node in nodes],
            [node.content for node in nodes],
            [node.metadata for node in nodes],
        )

    def link(
        self,
        find_all: FindAll = find_here,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Link all chunks that wait for it as one batch, and end the bulk ingest.

        Args:
            find_all: Who finds the pairs.
            advance: Adds a number of chunks to those linked.
        """
        begun = time.perf_counter()
        since = self.since or 1
        self.store.apply([BuildIndexes()])
        self.store.refresh_statistics()
        before = since if self.store.catalog.has_chunks_before(since) else 0
        of_pairs = tuple(linker for linker in self.linkers if isinstance(linker, PairLinker))
        links = RememberedLinks(self.store, self.store.fulltext)
        finder = PairFinder(links, of_pairs, before)
        keys = self.store.catalog.get_unlinked_keys()
        # Parts end at the same keys however often the work was interrupted.
        parts = [list(part) for _, part in groupby(keys, lambda key: key // _LINKED_AT_ONCE)]
        for part, found in zip(parts, find_all(finder, parts), strict=True):
            updates = [
                linker.make_edges(pairs, finder.store)
                for linker, pairs in zip(of_pairs, found, strict=True)
            ]
            edges = [edge for update in updates for edge in update.edges]
            edges += self._link_others(part)
            # Only chunks that have siblings now can have had others before.
            own = set(part)
            siblings = [e for e in edges if e.kind is EdgeKind.SIBLING and e.source in own]
            beside = {end for edge in siblings for end in (edge.source, edge.target)}
            lost = tuple(edge for update in updates for edge in update.lost)
            self.store.apply([PutEdges(tuple(edges), tuple(part), tuple(beside), lost)])
            advance(len(part))
        self.store.apply([PutMeta(((UNFINISHED_SINCE, ""),))])
        _log.info("%d chunks linked in %.0f ms", len(keys), elapsed_ms(begun))

    def _link_others(self, part: Sequence[int]) -> Iterator[Edge]:
        """Edges of linkers that are not in two steps."""
        others = [linker for linker in self.linkers if not isinstance(linker, PairLinker)]
        nodes = sorted(self.store.links.nodes(part)) if others else []
        for linker in others:
            yield from linker.link(nodes, self.store.links)
