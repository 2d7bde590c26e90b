"""Linker ``similar``: nearest neighbours by embedding. Optional: search finds most of them."""

from collections.abc import Callable, Iterable, Sequence

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.ingest.linkers.base import make_edge
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries

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
