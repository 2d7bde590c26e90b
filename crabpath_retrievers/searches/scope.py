"""The nodes that one namespace sees, for searches that record no turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.graph import Node, NodeHead, Vector, cosines
from crabpath_retrievers.seeds.index import VectorIndex, find_deleted, get_owner_lookup
from crabpath_retrievers.seeds.notes import NoteMemory
from crabpath_retrievers.seeds.search import find_nearest
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock


@dataclass(frozen=True)
class NamespaceView:
    """The view of one namespace during one search."""

    store: GraphStore
    index: VectorIndex
    notes: NoteMemory
    namespace: str

    @cached_property
    def clock(self) -> Clock:
        """Position of the namespace."""
        return self.store.walk.get_clock(self.namespace)

    def key(self, node_id: str) -> int:
        """Return the key of one node.

        Raises:
            NotFoundError: There is no such node, or it is a note of another namespace.
        """
        current_id = self.store.catalog.resolve_aliases([node_id]).get(node_id, node_id)
        heads = self.store.walk.get_nodes([current_id], namespace=self.clock.key)
        if not heads:
            msg = f"there is no document {node_id!r:.250} in namespace {self.namespace!r:.250}"
            raise NotFoundError(msg)
        return heads[0].key

    def near(self, vector: Vector, n: int) -> list[NodeHead]:
        """Return the documents nearest to a unit vector, shape ``[d]``, without notes."""
        return find_nearest(self.store, self.index, vector, n)

    def heads(self, keys: Sequence[int]) -> list[NodeHead]:
        """Return nodes by key, without notes whose probation is over."""
        if not keys:
            return []
        heads = self.store.walk.get_nodes([], list(keys), namespace=self.clock.key)
        ids = [head.id for head in heads]
        hidden = self.notes.find_expired(ids, self.clock) | self._find_deleted(ids)
        return [head for head in heads if head.id not in hidden]

    def _find_deleted(self, ids: Sequence[str]) -> set[str]:
        """Return the documents that the owner of a wrapped store has deleted."""
        get_owned = get_owner_lookup(self.index)
        return find_deleted(get_owned, self.store, ids, self.clock) if get_owned else set()

    def documents(self, ids: Sequence[str]) -> dict[str, Node]:
        """Return contents by id."""
        return self.store.catalog.documents(ids, namespace=self.clock.key)


def compute_similarities(heads: Sequence[NodeHead], vector: Vector) -> dict[int, float]:
    """Return the cosine of each node with a unit vector, shape ``[d]``, by key."""
    if not heads:
        return {}
    similarities = cosines([head.vector for head in heads], np.asarray(vector, dtype=np.float32))
    return {head.key: cosine for head, cosine in zip(heads, similarities, strict=True)}
