"""Bulk ingest: documents are published in large batches, and linked when all of them are there.

A new chunk is linked by what it shares with the whole corpus, so linking needs names and document
frequencies that are complete only at the end. Two passes find each edge once, and the graph does
not depend on the size of the batches, nor on who finds the edges: finding only reads, in any order
and in several processes, and what it finds is written in the order of keys.

Both passes can be killed at any point. The first chunk of an unfinished bulk ingest is kept in the
metadata of the store: until it has ended, what it published is found by search but not linked, and
the next ingest goes on with it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from crabpath_retrievers.core.changes import (
    BuildIndexes,
    Change,
    DeferIndexes,
    MarkIndexed,
    PublishNodes,
    PutEdges,
    PutMeta,
)
from crabpath_retrievers.core.graph import Edge, EdgeKind, Node
from crabpath_retrievers.core.progress import elapsed_ms
from crabpath_retrievers.core.text import IndexedWords
from crabpath_retrievers.ingest.linkers import Linker, PairLinker, SharedTermLinker
from crabpath_retrievers.ingest.linkers.base import Pair
from crabpath_retrievers.ingest.linkers.shared_terms import Pairs, TermRows, join_terms
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.links import LinkQueries, RememberedLinks
from crabpath_retrievers.storage.sql_tools import split_batches
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

    def collect_terms(self, keys: list[int]) -> list[TermRows]:
        """Collect the terms of chunks, for each linker of shared terms."""
        nodes = self.store.nodes(keys)
        linkers = (each for each in self.linkers if isinstance(each, SharedTermLinker))
        return [linker.collect_terms(nodes, self.store) for linker in linkers]

    def find_pairs(self, keys: list[int]) -> list[list[Pair]]:
        """Find the pairs of chunks, for each linker; those of shared terms only without a join."""
        nodes = sorted(self.store.nodes(keys))
        return [
            []
            if self.before == 0 and isinstance(linker, SharedTermLinker)
            else list(linker.find(nodes, self.store, self.before))
            for linker in self.linkers
        ]


Step = Literal["collect_terms", "find_pairs"]
"""Methods of :class:`PairFinder`."""

FindAll = Callable[[PairFinder, Step, Iterable[list[int]]], Iterator[list[Any]]]
"""Carries out a step for parts of the keys, and yields the results in the order of the parts."""


def find_here(finder: PairFinder, step: Step, parts: Iterable[list[int]]) -> Iterator[list[Any]]:
    """Carry out a step in this thread."""
    return map(getattr(finder, step), parts)


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
            words.get(node.digest) or IndexedWords.from_text(node.title, node.content)
            for node in nodes
        )
        in_database = bool(self.index.removal)
        vectors = self._write_vectors(nodes) if in_database else ()  # creates their table
        self._begin()
        published = PublishNodes(tuple(nodes), known, tuple(removed), in_database)
        self.store.apply([published, *vectors, *self.index.removal])
        if not in_database:
            self._write_vectors(nodes)
            self.store.apply([MarkIndexed(tuple(node.id for node in nodes))])

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
        shared = self._join_terms(finder, since, find_all) if before == 0 else _SharedPairs()
        keys = self.store.catalog.get_unlinked_keys()
        # Parts end at the same keys however often the work was interrupted.
        parts = [list(part) for _, part in groupby(keys, lambda key: key // _LINKED_AT_ONCE)]
        for part, found in zip(parts, find_all(finder, "find_pairs", parts), strict=True):
            edges: list[Edge] = []
            for linker, pairs in zip(of_pairs, found, strict=True):
                new = self._drop_known(linker, pairs, part)
                new += shared.take(linker, part)
                edges += linker.make_edges(new, finder.store)
            edges += self._link_others(part)
            # Only chunks that have siblings now can have had others before.
            siblings = [edge for edge in edges if edge.kind is EdgeKind.SIBLING]
            beside = {end for edge in siblings for end in (edge.source, edge.target)}
            self.store.apply([PutEdges(tuple(edges), tuple(part), tuple(beside))])
            advance(len(part))
        self.store.apply([PutMeta(((UNFINISHED_SINCE, ""),))])
        _log.info("%d chunks linked in %.0f ms", len(keys), elapsed_ms(begun))

    def _join_terms(self, finder: PairFinder, since: int, find_all: FindAll) -> "_SharedPairs":
        """Find the pairs of shared terms of the whole corpus."""
        linkers = [each for each in finder.linkers if isinstance(each, SharedTermLinker)]
        parts = list(split_batches(self.store.catalog.list_keys(since), _LINKED_AT_ONCE))
        if not (linkers and parts):
            return _SharedPairs()
        collected = list(find_all(finder, "collect_terms", parts))
        return _SharedPairs(
            (id(linker), join_terms(rows, linker.settings.max_chunks_per_term, finder.store))
            for linker, rows in zip(linkers, zip(*collected, strict=True), strict=True)
        )

    def _drop_known(
        self, linker: PairLinker, pairs: Sequence[Pair], part: Sequence[int]
    ) -> list[Pair]:
        """The pairs without those that a stored chunk, which was replaced, has found itself."""
        own = set(part)
        others = {source for source, _ in pairs if source not in own}
        if not others:
            return list(pairs)
        known = self.store.links.find_ends(sorted(others), linker.kind.value)
        return [pair for pair in pairs if pair[0] in own or pair not in known]

    def _link_others(self, part: Sequence[int]) -> Iterator[Edge]:
        """Edges of linkers that are not in two steps."""
        others = [linker for linker in self.linkers if not isinstance(linker, PairLinker)]
        nodes = sorted(self.store.links.nodes(part)) if others else []
        for linker in others:
            yield from linker.link(nodes, self.store.links)


class _SharedPairs(dict[int, Pairs]):
    """Pairs of shared terms, in order of the lower key, by the identity of their linker."""

    def take(self, linker: PairLinker, part: Sequence[int]) -> list[Pair]:
        """The pairs of a linker whose lower key is in a part, which is in order."""
        pairs = self.get(id(linker))
        if pairs is None:
            return []
        first, last = np.searchsorted(pairs[:, 0], [part[0], part[-1] + 1])
        own = set(part)
        return [(a, b) for a, b in pairs[first:last].tolist() if a in own]
