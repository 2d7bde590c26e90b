"""The linker protocol, and the linkers that read no names.

Linker ``sibling``: neighbouring chunks of the same source. Linker ``link``: Markdown, wiki and HTML
links, and metadata values that documents share. Linker ``similar``: nearest neighbours by
embedding; optional, since search finds most of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries


class Linker(Protocol):
    """Finds edges between new nodes and stored nodes, in both directions."""

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return the edges to add for nodes that were just published.

        Args:
            new: The new nodes; ``store`` returns them already.
            store: Lookups by name, phrase, address and source. A linker may look up its nodes
                and their matches only: the cost of an ingest must not grow with the corpus.
        """


Pair = tuple[int, int]
"""Keys of two nodes that an edge may lead between."""


class PairLinker(ABC):
    """A linker in two steps: pairs are found in any order, edges made of them in order of keys.

    Finding only reads, so that several processes can find the pairs of a large ingest; the limits
    on edges depend on what was linked before.

    Attributes:
        kind: Kind of the edge from the first to the second node of a pair.
    """

    kind: ClassVar[EdgeKind]

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return the edges to add for nodes that were just published."""
        return self.make_edges(self.find(new, store), store)

    @abstractmethod
    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> Sequence[Pair]:
        """Return the distinct pairs of the new nodes.

        Args:
            new: The new nodes.
            store: As for :meth:`Linker.link`.
            before: Nodes from this key on are all new, and find their own pairs with these; None
                if only ``new`` are.
        """

    @abstractmethod
    def make_edges(self, pairs: Sequence[Pair], store: LinkQueries) -> Iterable[Edge]:
        """Return the edges that the limits permit."""


def make_edge(settings: LinkSettings, source: int, target: int, kind: EdgeKind) -> Edge:
    """Make an edge with the prior weight and floor of its kind."""
    return Edge(source, target, kind, settings.priors[kind], settings.floor(kind))


def make_edges_both_ways(
    settings: LinkSettings, pairs: Iterable[Pair], kind: EdgeKind
) -> Iterator[Edge]:
    """Make the edges of each pair, there and back."""
    for first, second in pairs:
        yield make_edge(settings, first, second, kind)
        yield make_edge(settings, second, first, kind)


@dataclass(frozen=True)
class SiblingLinker(PairLinker):
    """Links each chunk to the previous and the next one, both ways."""

    kind = EdgeKind.SIBLING
    settings: LinkSettings

    def find(
        self,
        new: Sequence[LinkNode],
        store: LinkQueries,
        before: int | None = None,  # noqa: ARG002  neighbours are found from both sides
    ) -> Sequence[Pair]:
        """Return pairs of the new nodes and of their neighbours, whose own neighbours changed."""
        given = {node.key for node in new}
        found: list[Pair] = []
        for keys in store.in_order(sorted({node.source for node in new})).values():
            pairs = list(pairwise(keys))
            touched = {key for pair in pairs if not given.isdisjoint(pair) for key in pair}
            found += (pair for pair in pairs if not touched.isdisjoint(pair))
        return found

    def make_edges(self, pairs: Sequence[Pair], store: LinkQueries) -> Iterable[Edge]:  # noqa: ARG002
        """Return edges both ways."""
        return make_edges_both_ways(self.settings, pairs, EdgeKind.SIBLING)


@dataclass(frozen=True)
class LinkLinker(PairLinker):
    """Resolves links of new and of stored documents, so the order of ingest does not matter."""

    kind = EdgeKind.LINK
    settings: LinkSettings

    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> Sequence[Pair]:
        """Return links from the new nodes, and stored links that lead to them."""
        keys = [node.key for node in new]
        incoming = [
            pair
            for pair in (self._find_incoming(keys, store) if before != 0 else ())
            if before is None or pair[0] < before
        ]
        pairs = dict.fromkeys((*self._find_outgoing(keys, store), *incoming))
        return [(source, target) for source, target in pairs if source != target]

    def make_edges(self, pairs: Sequence[Pair], store: LinkQueries) -> Iterable[Edge]:
        """Return an edge for each link, and edges back within the limit."""
        back = store.out_degrees(sorted({t for _, t in pairs}), EdgeKind.LINKED_BY.value)
        for source, target in pairs:
            yield make_edge(self.settings, source, target, EdgeKind.LINK)
            if back.get(target, 0) < self.settings.max_back_links:
                back[target] = back.get(target, 0) + 1
                yield make_edge(self.settings, target, source, EdgeKind.LINKED_BY)

    def _find_outgoing(self, keys: Sequence[int], store: LinkQueries) -> Iterator[tuple[int, int]]:
        """Yield pairs (new node, node that it links to)."""
        references = store.references(keys)
        owners = store.find_addressed(sorted({t for found in references.values() for t in found}))
        for key, found in references.items():
            for target in found:
                yield from (
                    (key, owner) for owner in self._resolve_target(target, owners.get(target, ()))
                )

    def _find_incoming(self, keys: Sequence[int], store: LinkQueries) -> Iterator[tuple[int, int]]:
        """Yield pairs (node that links to it, new node)."""
        addresses = store.addresses(keys)
        owners = store.find_addressed(sorted({a for found in addresses.values() for a in found}))
        specific = [
            address for address, found in owners.items() if self._resolve_target(address, found)
        ]
        readers = store.find_referring(sorted(specific))
        for key, found in addresses.items():
            for address in found:
                yield from ((reader, key) for reader in readers.get(address, ()))

    def _resolve_target(self, target: str, owners: Sequence[int]) -> Sequence[int]:
        """Return the nodes that a target leads to; none if it is ambiguous."""
        shared = target.startswith("metadata:")
        most = self.settings.max_chunks_per_term if shared else self.settings.max_owners
        return owners if len(owners) <= most else ()


NearestNeighbours = Callable[[str, int], Sequence[tuple[int, float]]]
"""Maps a node id and a number to the keys and cosines of its nearest neighbours."""


@dataclass(frozen=True)
class SimilarLinker(Linker):
    """Links each node to its nearest neighbours, both ways."""

    settings: LinkSettings
    neighbours: NearestNeighbours

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:  # noqa: ARG002
        """Return edges between each new node and its neighbours."""
        for node in new:
            for other, cosine in self.neighbours(node.id, self.settings.similar_neighbours):
                if other != node.key and cosine >= self.settings.min_similarity:
                    yield make_edge(self.settings, node.key, other, EdgeKind.SIMILAR)
                    yield make_edge(self.settings, other, node.key, EdgeKind.SIMILAR)
