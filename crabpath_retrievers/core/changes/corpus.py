"""Change records of the corpus: nodes, structural edges, and metadata of the store."""

from dataclasses import dataclass
from typing import ClassVar

from crabpath_retrievers.core.records import Edge, EdgeKind, Node
from crabpath_retrievers.core.text import IndexedWords


class Change:
    """A change of the graph store that is data: ingest and learning compute it, undo knows it.

    ``GraphStore.apply`` carries out all changes of one call in one transaction and journals them.
    Other changes are functions, which ``GraphStore.write`` calls.
    """

    __slots__ = ()
    touches_corpus: ClassVar[bool] = True
    """Whether it may change nodes of documents, their edges or the statistics of words."""


@dataclass(frozen=True, slots=True)
class StageNodes(Change):
    """Record a batch before it is published, so that an interrupted ingest can be finished.

    Attributes:
        nodes: Nodes to add or replace, with their vectors.
        removed: Ids of nodes that publication deletes.
        retired: Ids of nodes that publication hides from queries. What was learned about them is
            kept, and counts again once a node with the same id is published.
        positions: New positions, as in :class:`MoveNodes`.
    """

    touches_corpus: ClassVar[bool] = False
    nodes: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    positions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishStaged(Change):
    """Make the staged batch visible to queries, and queue its nodes for linking."""


@dataclass(frozen=True, slots=True)
class PublishNodes(Change):
    """Make a batch visible without staging it, and queue its nodes for linking.

    Attributes:
        nodes: Nodes to add or replace, with their vectors.
        words: Their words, one for each node.
        removed: Ids of nodes to delete.
        indexed: Whether this transaction also writes their vectors to the index; otherwise they
            are queued for it first.
        queued: Whether they are queued; otherwise this transaction also links them.

    Returns the ids of the nodes to link by key, in order, where they are not queued: the given
    ones, and siblings of those that were replaced or deleted.
    """

    nodes: tuple[Node, ...]
    words: tuple[IndexedWords, ...]
    removed: tuple[str, ...] = ()
    indexed: bool = False
    queued: bool = True


@dataclass(frozen=True, slots=True)
class DeferIndexes(Change):
    """Drop the indexes of an empty store that are faster built afterwards; nothing on SQLite."""

    touches_corpus: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class BuildIndexes(Change):
    """Build the indexes that were deferred, and tidy the full text for many look-ups."""

    touches_corpus: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class MoveNodes(Change):
    """Set the position of nodes within their documents, and queue them for linking.

    Attributes:
        positions: Pairs ``(id, position)``.
    """

    positions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RemoveNodes(Change):
    """Delete nodes with all rows that refer to them, and queue their vectors for deletion.

    Their siblings are queued for linking.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueLinking(Change):
    """Queue nodes for linking, given by id."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutEdges(Change):
    """Add structural edges; existing ones get the new prior and floor.

    Attributes:
        edges: Edges by surrogate key; those of deleted nodes are skipped.
        linked: Keys of queued nodes whose linking this change completes.
        resorted: Keys of nodes whose edges to siblings are deleted first.
        lost: Source, target and kind of other edges that are deleted first.
    """

    edges: tuple[Edge, ...]
    linked: tuple[int, ...] = ()
    resorted: tuple[int, ...] = ()
    lost: tuple[tuple[int, int, EdgeKind], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmIndexDeletions(Change):
    """Take vectors off the deletion queue: the index no longer holds them."""

    touches_corpus: ClassVar[bool] = False
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutMeta(Change):
    """Write metadata of the store, such as its embedder, as pairs of name and value."""

    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MarkIndexed(Change):
    """Record that the vector index holds the vectors of what was queued for it.

    Attributes:
        nodes: Ids of document chunks.
        episodes: Ids of episodes.
        notes: Keys of notes.
    """

    touches_corpus: ClassVar[bool] = False
    nodes: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    notes: tuple[int, ...] = ()
