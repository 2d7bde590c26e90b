"""Linker ``link``: Markdown, wiki and HTML links, and metadata values that documents share."""

from collections.abc import Iterable, Iterator, Sequence

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.core.graph import Edge, EdgeKind
from crabpath_retrievers.ingest.linkers.base import make_edge
from crabpath_retrievers.storage.read.links import LinkNode, LinkQueries


class LinkLinker:
    """Resolves links of new and of stored documents, so the order of ingest does not matter."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors and bounds of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return edges for links from the new nodes, and for stored links that lead to them."""
        keys = [node.key for node in new]
        pairs = dict.fromkeys(
            (*self._find_outgoing(keys, store), *self._find_incoming(keys, store))
        )
        back = store.out_degrees(sorted({t for _, t in pairs}), EdgeKind.LINKED_BY.value)
        for source, target in pairs:
            if source == target:
                continue
            yield make_edge(self._settings, source, target, EdgeKind.LINK)
            if back.get(target, 0) < self._settings.max_back_links:
                back[target] = back.get(target, 0) + 1
                yield make_edge(self._settings, target, source, EdgeKind.LINKED_BY)

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
        most = self._settings.max_chunks_per_term if shared else self._settings.max_owners
        return owners if len(owners) <= most else ()
