"""The linker protocol, and the linkers that read no names.

Linker ``sibling``: neighbouring chunks of the same source. Linker ``link``: Markdown, wiki and HTML
links, and metadata values that documents share. Linker ``similar``: nearest neighbours by
embedding; optional, since search finds most of them.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple, Protocol

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.records import Edge, EdgeKind
from crabpath_retrievers.storage.read.catalog import LinkNode, LinkQueries


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

LostEdge = tuple[int, int, EdgeKind]
"""Source, target and kind of an edge to delete."""


class FoundPairs(NamedTuple):
    """Pairs of nodes to join, and pairs that are joined no longer.

    Attributes:
        new: Pairs to join, which may be joined already.
        lost: Pairs that are joined no longer, such as those of a name that too many nodes have now.
    """

    new: Collection[Pair]
    lost: Collection[Pair] = ()


class LinkUpdate(NamedTuple):
    """Edges to add, and edges to delete as ``(source, target, kind)``."""

    edges: tuple[Edge, ...]
    lost: tuple[LostEdge, ...] = ()


class PairLinker(ABC):
    """A linker in two steps: it finds pairs in any order, then makes edges of them within limits.

    The edges depend on the documents alone, not on their order or batches. What too many nodes
    share joins none of them, and edges made before are deleted. Of more edges than a limit permits,
    those stay whose other ends have the first ids. Finding only reads, so that several processes
    can find the pairs of a large ingest.

    Attributes:
        kind: Kind of the edge from the first to the second node of a pair.
        settings: Priors and limits of the edges.
    """

    kind: ClassVar[EdgeKind]

    def __init__(self, settings: LinkSettings) -> None:
        """Keep the settings."""
        self.settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return the edges to add for nodes that were just published."""
        return self.make_edges(self.find(new, store), store).edges

    @abstractmethod
    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> FoundPairs:
        """Return the pairs of the new nodes, and present pairs that no longer hold because of them.

        Args:
            before: In a bulk ingest, the key from which on all nodes are new; each of them finds
                its pairs with the others of these itself. None if only ``new`` are new.
        """

    def make_edges(self, pairs: FoundPairs, store: LinkQueries) -> LinkUpdate:  # noqa: ARG002
        """Return the edges that the limits permit, and edges to delete; by default both ways."""
        kind = self.kind
        edges = (
            make_edge(self.settings, *ends, kind) for a, b in pairs.new for ends in ((a, b), (b, a))
        )
        lost = ((*ends, kind) for a, b in pairs.lost for ends in ((a, b), (b, a)))
        return LinkUpdate(tuple(edges), tuple(lost))

    def find_freed(self, leaving: Sequence[int], store: LinkQueries) -> set[int]:  # noqa: ARG002
        """Return the nodes that may get more edges once the nodes ``leaving`` are gone.

        The same holds if these nodes get other texts. By default there are none.
        """
        return set()


def make_edge(settings: LinkSettings, source: int, target: int, kind: EdgeKind) -> Edge:
    """Make an edge with the prior weight and floor of its kind."""
    return Edge(source, target, kind, settings.priors[kind], settings.floor(kind))


def join_with_way_back(
    settings: LinkSettings,
    pairs: FoundPairs,
    kinds: tuple[EdgeKind, EdgeKind],
    most: int | None,
    store: LinkQueries,
) -> LinkUpdate:
    """Make the edges of each pair, and edges back, both within limits.

    Args:
        settings: Its ``max_back_links`` bounds the edges back from a target.
        most: Edges that may lead to a target; None for no bound.
    """
    there, back = kinds
    lost = set(pairs.lost)
    new = {(target, source) for source, target in pairs.new}
    parted = {target for _, target in lost}
    crowded = set(parted)
    if most is not None:
        more = Counter(target for target, _ in new)
        known = store.count_mentions(sorted(more))
        crowded |= {target for target, count in more.items() if count + known.get(target, 0) > most}
    held = store.find_sources(sorted(crowded), there.value) - {(t, s) for s, t in lost}
    added, dropped = choose_first(new, held, most, store)
    lost |= {(source, target) for target, source in dropped}
    # After a loss there is room for an edge back that there was none for.
    may_lead_back = added | {(t, s) for t, s in held - dropped if t in parted}
    held_back = store.find_ends(sorted({t for t, _ in added} | parted), back.value)
    held_back -= {(t, s) for s, t in lost}
    added_back, dropped_back = choose_first(
        may_lead_back, held_back, settings.max_back_links, store
    )
    edges = [make_edge(settings, source, target, there) for target, source in added]
    edges += [make_edge(settings, target, source, back) for target, source in added_back]
    gone = [(source, target, there) for source, target in lost]
    gone += [(target, source, back) for source, target in lost]
    gone += [(target, source, back) for target, source in dropped_back]
    return LinkUpdate(tuple(edges), tuple(gone))


def keep_freed(
    holders: Iterable[Sequence[int]], leaving: Collection[int], most: int
) -> Iterator[int]:
    """Yield the remaining holders of what too many nodes shared, if few enough are left.

    Args:
        most: Largest group that may be joined.
    """
    gone = set(leaving)
    for keys in holders:
        if len(keys) > most and len(left := [k for k in keys if k not in gone]) <= most:
            yield from left


def find_full_targets(
    leaving: Sequence[int], kind: EdgeKind, most: int, store: LinkQueries
) -> set[int]:
    """Return the targets of leaving nodes to which at least ``most`` edges of a kind lead."""
    targets = {target for _, target in store.find_ends(leaving, kind.value)} - set(leaving)
    held = Counter(target for target, _ in store.find_sources(sorted(targets), kind.value))
    return {target for target, count in held.items() if count >= most}


def choose_first(
    new: Collection[Pair], held: Collection[Pair], most: int | None, store: LinkQueries
) -> tuple[set[Pair], set[Pair]]:
    """Choose at most ``most`` partners of each node, those with the first ids; None takes all.

    Returns:
        Which of the new pairs (node, partner) to add, and which of the pairs ``held`` to drop.
    """
    partners: dict[int, set[int]] = defaultdict(set)
    for node, partner in (*new, *held):
        partners[node].add(partner)
    over = {} if most is None else {n: p for n, p in partners.items() if len(p) > most}
    ids = store.ids(sorted(set().union(*over.values())))
    dropped = {
        (node, partner)
        for node, found in over.items()
        for partner in sorted(found, key=ids.__getitem__)[most:]
    }
    return set(new) - dropped, dropped & set(held)


class SiblingLinker(PairLinker):
    """Links each chunk to the previous and the next one, both ways."""

    kind = EdgeKind.SIBLING

    def find(
        self,
        new: Sequence[LinkNode],
        store: LinkQueries,
        before: int | None = None,  # noqa: ARG002  neighbours are found from both sides
    ) -> FoundPairs:
        """Return pairs of the new nodes and of their neighbours, whose own neighbours changed."""
        given = {node.key for node in new}
        by_source = defaultdict[str, list[int]](list)
        for node in new:
            by_source[node.source].append(node.key)
        found: list[Pair] = []
        for keys in store.find_around(by_source).values():
            pairs = list(pairwise(keys))
            touched = {key for pair in pairs if not given.isdisjoint(pair) for key in pair}
            found += (pair for pair in pairs if not touched.isdisjoint(pair))
        return FoundPairs(found)


class LinkLinker(PairLinker):
    """Resolves links of new and of stored documents, so the order of ingest does not matter."""

    kind = EdgeKind.LINK

    def find(
        self, new: Sequence[LinkNode], store: LinkQueries, before: int | None = None
    ) -> FoundPairs:
        """Return links from new nodes, stored links to them, and links that are ambiguous now."""
        keys = [node.key for node in new]
        incoming, doubtful = list[Pair](), set[Pair]()
        if before != 0:
            addresses, owners = self._read_addressed(keys, store)
            incoming = [
                pair
                for pair in self._find_incoming(addresses, owners, store)
                if before is None or pair[0] < before
            ]
            doubtful = set(self._find_doubtful(keys, owners, store))
        pairs = dict.fromkeys((*self._find_outgoing(keys, store), *incoming))
        valid = self._find_outgoing(sorted({source for source, _ in doubtful}), store)
        return FoundPairs([(a, b) for a, b in pairs if a != b], doubtful - set(valid))

    def make_edges(self, pairs: FoundPairs, store: LinkQueries) -> LinkUpdate:
        """Return an edge for each link, and edges back within the limit."""
        kinds = (EdgeKind.LINK, EdgeKind.LINKED_BY)
        return join_with_way_back(self.settings, pairs, kinds, None, store)

    def find_freed(self, leaving: Sequence[int], store: LinkQueries) -> set[int]:
        """Return nodes that may get more edges once the nodes ``leaving`` are gone.

        These are owners of addresses that are no longer ambiguous, and targets that have reached a
        limit.
        """
        _, owners = self._read_addressed(leaving, store)
        freed = find_full_targets(leaving, self.kind, self.settings.max_back_links, store)
        for address, keys in owners.items():
            freed.update(keep_freed([keys], leaving, self._bound_owners(address)))
        return freed

    def _find_doubtful(
        self, keys: Sequence[int], owners: Mapping[str, Sequence[int]], store: LinkQueries
    ) -> Iterator[Pair]:
        """Yield links to check again: those of the nodes ``keys``, and those to shared addresses.

        ``owners`` has all nodes of each address.
        """
        yield from store.find_ends(keys, self.kind.value)
        yield from ((s, t) for t, s in store.find_sources(keys, self.kind.value))
        given = set(keys)
        shared = {
            address: found
            for address, all_owners in owners.items()
            if not self._resolve_target(address, all_owners)
            and self._resolve_target(address, found := [k for k in all_owners if k not in given])
        }
        readers = store.find_referring(sorted(shared))
        for address, found in shared.items():
            yield from ((reader, owner) for reader in readers.get(address, ()) for owner in found)

    def _find_outgoing(self, keys: Sequence[int], store: LinkQueries) -> Iterator[Pair]:
        """Yield pairs ``(node, node that it links to)`` for the nodes ``keys``."""
        references = store.references(keys, terms=False)
        targets = sorted({target for found in references.values() for target in found})
        owners = store.find_addressed(targets, self._most_owners + 1)
        for key, found in references.items():
            for target in found:
                yield from (
                    (key, owner) for owner in self._resolve_target(target, owners.get(target, ()))
                )

    def _find_incoming(
        self,
        addresses: Mapping[int, Sequence[str]],
        owners: Mapping[str, Sequence[int]],
        store: LinkQueries,
    ) -> Iterator[Pair]:
        """Yield pairs (stored node, new node to which it links).

        ``addresses`` are those of each new node; ``owners`` has all nodes of each address.
        """
        specific = [
            address for address, found in owners.items() if self._resolve_target(address, found)
        ]
        readers = store.find_referring(sorted(specific))
        for key, found in addresses.items():
            for address in found:
                yield from ((reader, key) for reader in readers.get(address, ()))

    def _resolve_target(self, target: str, owners: Sequence[int]) -> Sequence[int]:
        """Return the owners of a target; none if it is ambiguous."""
        return owners if len(owners) <= self._bound_owners(target) else ()

    def _bound_owners(self, target: str) -> int:
        """Return the largest number of nodes that may share a target."""
        shared = target.startswith("metadata:")
        return self.settings.max_chunks_per_term if shared else self.settings.max_owners

    @property
    def _most_owners(self) -> int:
        return max(self.settings.max_chunks_per_term, self.settings.max_owners)

    def _read_addressed(
        self, keys: Sequence[int], store: LinkQueries
    ) -> tuple[dict[int, list[str]], dict[str, list[int]]]:
        """Read the addresses of each of the nodes ``keys``, and the nodes of each address.

        Of more nodes than may share an address without ``keys``, some are left out.
        """
        addresses = store.addresses(keys)
        targets = sorted({address for own in addresses.values() for address in own})
        return addresses, store.find_addressed(targets, self._most_owners + len(keys) + 1)


NearestNeighbours = Callable[[LinkQueries, str, int], Sequence[tuple[int, float]]]
"""Maps reads of the store, a node id and a number to its nearest neighbours.

These are keys with similarities.
"""


@dataclass(frozen=True)
class SimilarLinker(Linker):
    """Links each node to its nearest neighbours, both ways."""

    settings: LinkSettings
    neighbours: NearestNeighbours

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return edges between each new node and its neighbours."""
        for node in new:
            for other, near in self.neighbours(store, node.id, self.settings.similar_neighbours):
                if other != node.key and near >= self.settings.min_similarity:
                    yield make_edge(self.settings, node.key, other, EdgeKind.SIMILAR)
                    yield make_edge(self.settings, other, node.key, EdgeKind.SIMILAR)
