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
        next: Whether it is the table of the next index of documents.
    """

    touches_corpus: ClassVar[bool] = False
    dimension: int | None = None
    next: bool = False


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


@dataclass(frozen=True, slots=True)
class BeginReembedding(Change):
    """Create the table of new vectors; what another change of the embedder left is deleted.

    Attributes:
        identity: The new embedder, as text.
    """

    touches_corpus: ClassVar[bool] = False
    identity: str


@dataclass(frozen=True, slots=True)
class PutReembedded(Change):
    """Keep new vectors until all are there.

    Attributes:
        rows: Kind, key and mark of each text, with its unit vector ``[d]``.
        adopted: Whether they replace the old ones at once, after the switch.
    """

    touches_corpus: ClassVar[bool] = False
    rows: tuple[tuple[str, str, str, Vector], ...]
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class SwitchEmbedder(Change):
    """Replace all vectors by the new ones, which are all there.

    Episodes and notes are queued for the vector index.

    Attributes:
        identity: The new embedder, as text.
        time: Seconds since the epoch; snapshots from before it cannot be restored.
    """

    identity: str
    time: float


@dataclass(frozen=True, slots=True)
class SwitchVectorTables(Change):
    """Put the table of the next index in the place of that of the documents."""

    touches_corpus: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class DropNextVectors(Change):
    """Delete the table of the next index."""

    touches_corpus: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class EndReembedding(Change):
    """Delete the table of new vectors.

    Attributes:
        forgets: Whether turns and corrections that came too late for it lose their old vectors.
    """

    touches_corpus: ClassVar[bool] = False
    forgets: bool = False
