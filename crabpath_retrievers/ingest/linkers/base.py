"""The protocol of linkers and how they make edges."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.graph import Edge, EdgeKind
from crabpath_retrievers.storage.link_queries import LinkNode, LinkQueries


class Linker(Protocol):
    """Finds edges between new nodes and everything that is already there, both ways."""

    def link(self, new: Sequence[LinkNode], store: LinkQueries) -> Iterable[Edge]:
        """Edges to add for nodes that were just published.

        Args:
            new: The nodes; they are visible in ``store`` already.
            store: Lookups by name, phrase, address and source. A linker must not ask for more
                than its nodes and their matches: ingest may not grow with the corpus.
        """


def edge(settings: LinkSettings, source: int, target: int, kind: EdgeKind) -> Edge:
    """An edge of a kind with its prior and floor."""
    return Edge(source, target, kind, settings.priors[kind], settings.floor(kind))
