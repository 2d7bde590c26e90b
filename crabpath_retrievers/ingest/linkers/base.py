"""The linker protocol, and a helper that makes edges."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries


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
