"""Linking of chunks: right after they are published, or all of a bulk ingest as one batch.

A new chunk is linked by what it shares with the whole corpus, which is complete only at the end.
A bulk ingest therefore takes two passes, which find each edge once, and none that a later chunk
parts again. Finding only reads, in any order and in several processes.

Both passes can be killed at any point. The first chunk of an unfinished bulk ingest is kept in the
metadata of the store: until it has ended, what it published is found by search but not linked, and
the next ingest goes on with it.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, groupby
from typing import NamedTuple

from crabpath_retrievers.core.calls import elapsed_ms
from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.query import require_result
from crabpath_retrievers.core.records import TEXT_KINDS, Edge, EdgeKind
from crabpath_retrievers.core.text import is_number
from crabpath_retrievers.ingest.linkers import FoundPairs, Linker, LinkUpdate, PairLinker
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.read.catalog import LinkNode, LinkQueries, RememberedLinks
from crabpath_retrievers.storage.write.nodes import (
    build_indexes,
    defer_indexes,
    put_edges,
    put_meta,
    queue_linking,
)
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.base import VectorIndex

_log = logging.getLogger(__name__)

_LINKED_AT_ONCE = 1024
UNFINISHED_SINCE = "bulk_since"
"""Name of the key of the first chunk of an unfinished bulk ingest, among the facts of a store."""


class PairFinder(NamedTuple):
    """Finds pairs of chunks to link; reads only, so that any process can do it."""

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
    """Find the pairs of each part of the chunks by ``finder``, in this thread."""
    return map(finder.find, parts)


class Linking:
    """Links chunks with their neighbours; the caller holds the ingest lock."""

    def __init__(self, store: GraphStore, linkers: Sequence[Linker], index: VectorIndex) -> None:
        """Keep store and linkers, and ``index``, which builds what a bulk ingest has deferred."""
        self.store, self.linkers, self.index = store, linkers, index
        self._of_pairs = tuple(linker for linker in linkers if isinstance(linker, PairLinker))

    def begin_bulk(self) -> None:
        """Begin a bulk ingest, unless one is unfinished."""
        if find_bulk_start(self.store) is None:
            last = self.store.catalog.get_last_key()
            deferred = () if last else (Write(defer_indexes), *self.index.deferral)
            begun = Write(put_meta, {UNFINISHED_SINCE: str(last + 1)})
            self.store.apply([begun, *deferred])

    def find_freed(self, links: LinkQueries, leaving: Sequence[str]) -> set[int]:
        """Return the nodes to link again once the nodes ``leaving`` are gone or get other texts."""
        keys = sorted(links.keys(leaving).values())
        found = [linker.find_freed(keys, links) for linker in self._of_pairs] if keys else ()
        return set[int]().union(*found).difference(keys)

    def queue_freed(self, links: LinkQueries, leaving: Sequence[str]) -> tuple[Change, ...]:
        """Return the change that queues the nodes of :meth:`find_freed` for linking.

        Empty if there are no such nodes.
        """
        ids = links.ids(sorted(self.find_freed(links, leaving))).values()
        return (Write(queue_linking, list(ids)),) if ids else ()

    def link(
        self,
        find_all: FindAll = find_here,
        show: Callable[[int], AbstractContextManager[Callable[[int], object]]] | None = None,
    ) -> None:
        """Link all chunks that wait for it; those of a bulk ingest as one batch, which ends it.

        Args:
            show: Shows the progress of a bulk ingest, given its number of chunks; None for none.
        """
        with self.store.open_reader() as read:
            since, keys = find_bulk_start(read), read.catalog.get_unlinked_keys()
            if since is None and keys:
                update, siblings = self.find_edges(read.links.nodes(keys), read.links)
        if since is not None:
            with nullcontext(lambda _: None) if show is None else show(len(keys)) as advance:
                self._link_bulk(since, keys, find_all, advance)
        elif keys:
            resorted = tuple({*keys, *(edge.target for edge in siblings)})
            self.store.write(put_edges, update.edges, keys, resorted, update.lost)

    def _link_bulk(
        self, since: int, keys: Sequence[int], find_all: FindAll, advance: Callable[[int], object]
    ) -> None:
        begun = time.perf_counter()
        self.store.apply([Write(build_indexes), *self.index.completion])
        self.store.refresh_statistics()
        before = since if self.store.catalog.has_chunks_before(since) else 0
        links = RememberedLinks(self.store, self.store.fulltext)
        finder = PairFinder(links, self._of_pairs, before)
        reads_nodes = len(self._of_pairs) < len(self.linkers)
        # Parts end at the same keys however often the work was interrupted.
        parts = [list(part) for _, part in groupby(keys, lambda key: key // _LINKED_AT_ONCE)]
        for part, pairs in zip(parts, find_all(finder, parts), strict=True):
            nodes = sorted(links.nodes(part)) if reads_nodes else []
            update = self._make_edges(pairs, nodes, links)
            # Only chunks that have siblings now can have had others before.
            siblings = _select_siblings(update.edges, part)
            beside = {end for edge in siblings for end in (edge.source, edge.target)}
            self.store.write(put_edges, update.edges, part, tuple(beside), update.lost)
            advance(len(part))
        self.store.write(put_meta, {UNFINISHED_SINCE: ""})
        _log.info("%d chunks linked in %.0f ms", len(keys), elapsed_ms(begun))

    def find_edges(
        self, nodes: Sequence[LinkNode], links: LinkQueries
    ) -> tuple[LinkUpdate, list[Edge]]:
        """Find the edges of nodes; return all of them, and those that lead to siblings."""
        pairs = [linker.find(nodes, links) for linker in self._of_pairs]
        update = self._make_edges(pairs, nodes, links)
        return update, _select_siblings(update.edges, [node.key for node in nodes])

    def _make_edges(
        self, pairs: Iterable[FoundPairs], nodes: Sequence[LinkNode], links: LinkQueries
    ) -> LinkUpdate:
        """Make edges of the pairs that each linker found; other linkers find edges of ``nodes``."""
        found = iter(pairs)
        updates = [
            linker.make_edges(next(found), links)
            if isinstance(linker, PairLinker)
            else LinkUpdate(require_edges(linker, linker.link(nodes, links)))
            for linker in self.linkers
        ]
        edges = tuple(chain.from_iterable(update.edges for update in updates))
        return LinkUpdate(edges, tuple(chain.from_iterable(update.lost for update in updates)))


def require_edges(linker: Linker, found: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the edges that a linker found."""
    what = "edges with keys of nodes, a kind that texts have, and prior and floor in [-1, 1]"
    require_result(linker, what, found, fits=isinstance(found, Iterable))
    edges = tuple(found)
    for edge in edges:
        fits = isinstance(edge, Edge) and edge.kind in TEXT_KINDS
        fits = fits and isinstance(edge.source, int) and isinstance(edge.target, int)
        fits = fits and all(is_number(w) and -1 <= w <= 1 for w in (edge.prior, edge.floor))
        require_result(linker, what, edge, fits=fits)
    return edges


def find_bulk_start(read: Reader) -> int | None:
    """Find the key of the first chunk of an unfinished bulk ingest; None without one."""
    found = read.catalog.meta().get(UNFINISHED_SINCE)
    return int(found) if found else None


def _select_siblings(edges: Iterable[Edge], keys: Collection[int]) -> list[Edge]:
    own = set(keys)
    return [edge for edge in edges if edge.kind is EdgeKind.SIBLING and edge.source in own]
