"""``link``: Markdown, wiki and HTML links, and shared metadata; a weaker edge back."""

from collections.abc import Iterable, Sequence

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.ingest.linkers.base import edge
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries


class LinkLinker:
    """Resolves link targets in both directions, so the order of ingest does not matter."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors and bounds of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Edges along the links of the new nodes, and along old links that lead to them."""
        keys = [node.key for node in new]
        pairs = dict.fromkeys((*self._outgoing(keys, store), *self._incoming(keys, store)))
        for source, target in pairs:
            if source != target:
                yield edge(self._settings, source, target, EdgeKind.LINK)
                yield edge(self._settings, target, source, EdgeKind.LINKED_BY)

    def _outgoing(self, keys: Sequence[int], store: LinkQueries) -> Iterable[tuple[int, int]]:
        references = store.references(keys)
        targets = store.addressed(sorted({t for found in references.values() for t in found}))
        for key, found in references.items():
            for target in found:
                yield from ((key, owner) for owner in targets.get(target, ())[: self._most(target)])

    def _incoming(self, keys: Sequence[int], store: LinkQueries) -> Iterable[tuple[int, int]]:
        addresses = store.addresses(keys)
        readers = store.referring(sorted({a for found in addresses.values() for a in found}))
        for key, found in addresses.items():
            for address in found:
                most = self._settings.max_back
                yield from ((reader, key) for reader in readers.get(address, ())[:most])

    def _most(self, target: str) -> int:
        # Equal metadata can join whole corpora; a path or URL names one document.
        shared = target.startswith("metadata:")
        return self._settings.max_shared if shared else self._settings.max_owners
