"""The linker protocol, and a helper that makes edges.

Linker ``sibling``: neighbouring chunks of the same source.

Linker ``similar``: nearest neighbours by embedding. Optional: search finds most of them.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Protocol

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


def make_edge(settings: LinkSettings, source: int, target: int, kind: EdgeKind) -> Edge:
    """Make an edge with the prior weight and floor of its kind."""
    return Edge(source, target, kind, settings.priors[kind], settings.floor(kind))


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


NearestNeighbours = Callable[[str, int], Sequence[tuple[int, float]]]
"""Maps a node id and a number to the keys and cosines of its nearest neighbours."""


class SimilarLinker:
    """Links each node to its nearest neighbours, both ways."""

    def __init__(self, settings: LinkSettings, neighbours: NearestNeighbours) -> None:
        """Use the bounds of ``settings`` and a nearest-neighbour search."""
        self._settings = settings
        self._neighbours = neighbours

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:  # noqa: ARG002
        """Return edges between each new node and its neighbours."""
        for node in new:
            for other, cosine in self._neighbours(node.id, self._settings.similar_neighbours):
                if other != node.key and cosine >= self._settings.min_similarity:
                    yield make_edge(self._settings, node.key, other, EdgeKind.SIMILAR)
                    yield make_edge(self._settings, other, node.key, EdgeKind.SIMILAR)
