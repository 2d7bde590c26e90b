"""Changes of what was read: nodes, structure edges, and facts about the store."""

from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.graph import Edge, EdgeKind, Node


class Split(NamedTuple):
    """A node, its parts in their order, by id, and the maintenance that splits it."""

    whole: str
    pieces: tuple[str, ...]
    run: str


@dataclass(frozen=True, slots=True)
class StageNodes:
    """Write down an intended batch before any store shows it, so that a crash can be repaired.

    Attributes:
        nodes: Nodes to add or replace; each carries its vector.
        removed: Ids of nodes that go when the batch is published.
        retired: Ids of nodes that queries no longer see from then on; what was learned about them
            stays, and counts again once a node with the same id is published.
        positions: As in :class:`MoveNodes`, when the batch is published.
        splits: Nodes for which others of this batch stand from then on.
    """

    nodes: tuple[Node, ...] = ()
    removed: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    positions: tuple[tuple[str, int], ...] = ()
    splits: tuple[Split, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishStaged:
    """Make everything staged visible to queries at once; it then waits for its edges."""


@dataclass(frozen=True, slots=True)
class MoveNodes:
    """Set the position of nodes inside their document; they wait for new edges.

    Attributes:
        positions: As ``(id, position)``.
    """

    positions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Delete nodes with all that refers to them; their vectors are put on the trash list.

    The nodes that stood beside them wait for new edges.
    """

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutEdges:
    """Add edges; one that exists keeps its place and gets the new prior and floor.

    Attributes:
        edges: By surrogate key; edges of vanished nodes are skipped.
        linked: Keys of waiting nodes whose linking is complete with this change.
    """

    edges: tuple[Edge, ...]
    linked: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveEdges:
    """Delete the edges of these kinds that leave or enter the given nodes (by key)."""

    keys: tuple[int, ...]
    kinds: tuple[EdgeKind, ...]


@dataclass(frozen=True, slots=True)
class EmptyTrash:
    """Forget that these vectors had to be deleted: they are gone."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutMeta:
    """Remember facts about the store itself, such as its embedder."""

    values: tuple[tuple[str, str], ...]
