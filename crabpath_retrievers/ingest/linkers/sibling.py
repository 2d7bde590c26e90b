"""Linker ``sibling``: neighbouring chunks of the same source."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.ingest.linkers.base import make_edge
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries


class SiblingLinker:
    """Links each chunk to the previous and the next one, both ways."""

    def __init__(self, settings: LinkSettings) -> None:
        """Use the priors of ``settings``."""
        self._settings = settings

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Return edges of the new nodes and of their neighbours, whose own neighbours changed."""
        given = {node.key for node in new}
        for keys in store.in_order(sorted({node.source for node in new})).values():
            pairs = list(pairwise(keys))
            touched = {key for pair in pairs if given & set(pair) for key in pair}
            for first, second in pairs:
                if first in touched or second in touched:
                    yield make_edge(self._settings, first, second, EdgeKind.SIBLING)
                    yield make_edge(self._settings, second, first, EdgeKind.SIBLING)
