"""Change records of vectors that are kept in the database of the graph."""

from dataclasses import dataclass
from typing import Any, ClassVar

from crabpath_retrievers.core.changes.corpus import Change
from crabpath_retrievers.core.graph import Vector


@dataclass(frozen=True, slots=True)
class CreateVectorTables(Change):
    """Create what vectors need, unless it exists.

    Attributes:
        dimension: Of the vectors, for their tables; None for the extension of PostgreSQL alone.
    """

    touches_corpus: ClassVar[bool] = False
    dimension: int | None = None


@dataclass(frozen=True, slots=True)
class PutVectors(Change):
    """Add vectors, or replace those with the same id; the tables exist.

    Attributes:
        ids: Distinct ids.
        vectors: Unit vectors, each of shape ``[d]``.
        texts: The embedded texts.
        metadatas: JSON-safe metadata to filter by.
        collection: Name of a collection of a namespace; None for the documents.
    """

    touches_corpus: ClassVar[bool] = False
    ids: tuple[str, ...]
    vectors: tuple[Vector, ...]
    texts: tuple[str, ...]
    metadatas: tuple[dict[str, Any], ...]
    collection: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteVectors(Change):
    """Delete vectors; unknown ids are ignored.

    Attributes:
        ids: Ids of vectors; None for the whole collection.
        collection: As in :class:`PutVectors`.
    """

    touches_corpus: ClassVar[bool] = False
    ids: tuple[str, ...] | None
    collection: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteQueuedVectors(Change):
    """Delete the vectors of documents that are queued for it, and empty that queue."""

    touches_corpus: ClassVar[bool] = False
