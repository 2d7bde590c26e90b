"""Helpers of the store tests: nodes made in one line, and a whole publication in one call."""

from collections.abc import Callable

import numpy as np
import pytest
import sqlalchemy as sa
from tables import meta, metadata

from crabpath_retrievers import Edge, EdgeKind, Node
from crabpath_retrievers.core.text import list_mention_names
from crabpath_retrievers.storage import GraphStore
from tests.seams import make_change

PRIOR, FLOOR = 0.5, 0.25


def chunk(node_id: str, content: str = "plain text", **fields) -> Node:
    """A node with a vector of its own; its title is its name."""
    fields = {"document": node_id, "source": node_id, "digest": content[:64], **fields}
    fields.setdefault("names", list_mention_names(fields.get("title", "")))
    return Node(id=node_id, content=content, vector=np.array([1.0, 0.0], np.float32), **fields)


class Graph:
    """Writes to a store in the steps of an ingest and reads keys and rows back."""

    def __init__(self, store: GraphStore) -> None:
        """Work on ``store``."""
        self.store = store

    def publish(self, *nodes: Node, removed: tuple[str, ...] = ()) -> list[int]:
        """Stage, publish and finish nodes; returns their keys."""
        self.store.apply(
            [make_change("stage_nodes", nodes, removed), make_change("publish_staged")]
        )
        keys = self.keys(*(node.id for node in nodes))
        self.store.apply([make_change("put_edges", (), tuple(keys))])
        return keys

    def keys(self, *ids: str) -> list[int]:
        """Surrogate keys in the order of the ids."""
        found = {head.id: head.key for head in self.store.walk.get_nodes(ids)}
        return [found[node_id] for node_id in ids]

    def join(self, source: int, target: int, kind: EdgeKind = EdgeKind.LINK) -> None:
        """Add an edge of prior 0.5 and floor 0.25."""
        self.store.apply([make_change("put_edges", (Edge(source, target, kind, PRIOR, FLOOR),))])

    def weight(self, source: int, target: int, namespace: str = "default") -> float:
        """Effective weight of the one edge between two nodes."""
        clock = self.store.walk.get_clock(namespace)
        pointers = self.store.walk.get_outgoing_edges([source], clock).pointers
        (found,) = [p.weight for p in pointers if p.target.key == target]
        return found

    def contents(self, *, without: tuple[str, ...] = ()) -> dict[str, list]:
        """Every row of every table, for comparing whole stores."""
        tables = [
            t for t in metadata.sorted_tables if t.name.removeprefix("crabpath_") not in without
        ]
        with self.store.connect() as connection:
            found = {t.name: sorted(map(tuple, connection.execute(sa.select(t)))) for t in tables}
        # Every change of the corpus draws its version anew.
        found[meta.name] = [row for row in found[meta.name] if row[0] != "corpus"]
        return found


@pytest.fixture
def graph(store: GraphStore) -> Graph:
    """The empty store of the test with these helpers."""
    return Graph(store)


@pytest.fixture
def make() -> Callable[..., Node]:
    """Makes a node: ``make("id", "text", title=...)``."""
    return chunk
