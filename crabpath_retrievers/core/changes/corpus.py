"""Change records of the corpus: nodes, structural edges, and metadata of the store."""

from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.core.graph import Edge, EdgeKind, Node


class NodeSplit(NamedTuple):
    """A node that maintenance splits: its id, the ids of its parts in order, and the run id."""

    whole: str
    pieces: tuple[str, ...]
    run: str


@dataclass(frozen=True, slots=True)
class StageNodes:
    """Record a batch before it is published, so that an interrupted ingest can be finished.

    Attributes:
        nodes: Nodes to add or replace, with their vectors.
        removed: Ids of nodes that publication deletes.
        retired: Ids of nodes that publication hides from queries. What was learned about them is
            kept, and counts again once a node with the same id is published.
        positions: New positions, as in :class:`MoveNodes`.
        splits: Nodes that parts in this batch replace.
    """

    nodes: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    positions: tuple[tuple[str, int], ...] = ()
    splits: tuple[NodeSplit, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishStaged:
    """Make the staged batch visible to queries, and queue its nodes for linking."""


@dataclass(frozen=True, slots=True)
class MoveNodes:
    """Set the position of nodes within their documents, and queue them for linking.

    Attributes:
        positions: Pairs ``(id, position)``.
    """

    positions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Delete nodes with all rows that refer to them, and queue their vectors for deletion.

    Their siblings are queued for linking.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutEdges:
    """Add structural edges; existing ones get the new prior and floor.

    Attributes:
        edges: Edges by surrogate key; those of deleted nodes are skipped.
        linked: Keys of queued nodes whose linking this change completes.
    """

    edges: tuple[Edge, ...]
    linked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveEdges:
    """Delete the edges of these kinds that leave or enter the nodes with these keys."""

    keys: tuple[int, ...]
    kinds: tuple[EdgeKind, ...]


@dataclass(frozen=True, slots=True)
class ConfirmIndexDeletions:
    """Take vectors off the deletion queue: the index no longer holds them."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutMeta:
    """Write metadata of the store, such as its embedder, as pairs of name and value."""

    values: tuple[tuple[str, str], ...]
