"""Linkers derive edges from the text of documents, without a model."""

from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.ingest.linkers.base import (
    FoundPairs,
    Linker,
    LinkLinker,
    LinkUpdate,
    NearestNeighbours,
    PairLinker,
    SiblingLinker,
    SimilarLinker,
)
from crabpath_retrievers.ingest.linkers.names import MentionLinker, SharedTermLinker


def make_linkers(settings: LinkSettings, neighbours: NearestNeighbours) -> tuple[Linker, ...]:
    """Make the linkers that the settings enable, in the order in which they run."""
    linkers: list[Linker] = [
        SiblingLinker(settings),
        LinkLinker(settings),
        MentionLinker(settings),
        SharedTermLinker(settings),
    ]
    if settings.similar_neighbours:
        linkers.append(SimilarLinker(settings, neighbours))
    return tuple(linkers)


__all__ = [
    "FoundPairs",
    "LinkLinker",
    "LinkUpdate",
    "Linker",
    "MentionLinker",
    "NearestNeighbours",
    "PairLinker",
    "SharedTermLinker",
    "SiblingLinker",
    "SimilarLinker",
    "make_linkers",
]
