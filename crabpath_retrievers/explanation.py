"""Why each document of a turn came, in a form for people and for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from crabpath_retrievers.graph import Node
from crabpath_retrievers.query import namespace_of, text_of
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.history_queries import EdgeName, Move
from crabpath_retrievers.trajectory import PathEdge, Turn

MOST_MOVES = 5
"""Moves that are told of an edge."""


@dataclass(frozen=True, slots=True)
class EdgeMoves:
    """Which feedback moved the weight of an edge, newest first, five at most."""

    source: str
    target: str
    kind: str
    moves: tuple[Move, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        edge = {"source": self.source, "target": self.target, "kind": self.kind}
        return {**edge, "moves": [move._asdict() for move in self.moves]}


@dataclass(frozen=True, slots=True)
class DocumentReason:
    """Why one document came.

    Attributes:
        id, title: The document; title is empty when it was forgotten since.
        probability: Probability of relevance, in [0, 1].
        origin: ``seed`` (search found it) or ``walk`` (a pointer led to it).
        path: Route from the seed: kind, weight, tier and probability of every hop.
        support: Strongest pointer from a visited node, for search hits too.
        contributions: Log-odds that each feature added, largest first.
        moved: Which feedback moved the edges of path and support, as the namespace of the turn
            has learned until now; edges that it never moved are left out.
    """

    id: str
    title: str
    probability: float
    origin: str
    path: tuple[PathEdge, ...]
    support: PathEdge | None
    contributions: dict[str, float]
    moved: tuple[EdgeMoves, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        return {**asdict(self), "moved": [edge.to_dict() for edge in self.moved]}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one turn."""

    turn: Turn
    documents: tuple[DocumentReason, ...]
    titles: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain, JSON-safe data."""
        return {
            "turn": {**asdict(self.turn), "follow_log": list(self.turn.follow_log)},
            "documents": [document.to_dict() for document in self.documents],
        }


def edges_of(path: Sequence[PathEdge], support: PathEdge | None) -> tuple[PathEdge, ...]:
    """The edges of a route and of the pointer that supports it, each once."""
    edges = {(e.source, e.target, e.kind): e for e in (*path, *((support,) if support else ()))}
    return tuple(edges.values())


def edges_shown(turn: Turn) -> set[EdgeName]:
    """Every edge that an explanation names."""
    return {
        (edge.source, edge.target, edge.kind)
        for item in turn.returned
        for edge in edges_of(item.path, item.support)
    }


def nodes_shown(turn: Turn) -> list[str]:
    """Ids of the nodes that an explanation names."""
    shown = {item.node for item in turn.returned}
    for item in turn.returned:
        edges = (*item.path, item.support) if item.support else item.path
        shown |= {node for edge in edges for node in (edge.source, edge.target)}
    return sorted(shown)


def explain_turn(
    store: GraphStore, ranker: Ranker, turn_id: str | UUID, *, namespace: str | None = None
) -> Explanation:
    """Why each document of a turn came; the graph store alone is read.

    Args:
        store: Where the turn is recorded.
        ranker: Tells what each feature added.
        turn_id: Id of the turn, or of the host's run that asked.
        namespace: Only turns of this namespace are found; None looks in all.

    Raises:
        NotFoundError: There is no such turn in that namespace.
    """
    scope = None if namespace is None else namespace_of(namespace)
    turn = store.turns.get(text_of("turn_id", turn_id), namespace=scope)
    key = store.walk.clock(turn.namespace).key
    documents = store.catalog.documents(nodes_shown(turn), namespace=key)
    moves = store.history.moves(turn.namespace, edges_shown(turn), MOST_MOVES)
    return explain(turn, documents, ranker, moves)


def explain(
    turn: Turn,
    nodes: Mapping[str, Node],
    ranker: Ranker,
    moves: Mapping[EdgeName, tuple[Move, ...]] = MappingProxyType({}),
) -> Explanation:
    """Put a turn record and the ranker's weights together.

    Args:
        turn: The record.
        nodes: The nodes it mentions that still exist, by id.
        ranker: Gives the weight of each feature.
        moves: Which feedback moved its edges, newest first.
    """
    titles = {node_id: node.title for node_id, node in nodes.items()}
    weights = dict(zip(FEATURES, ranker.weights.tolist(), strict=True))
    weights["inhibition"] -= ranker.inhibition
    reasons = []
    for item in turn.returned:
        shares = {n: round(v * weights.get(n, 0.0), 3) for n, v in item.features.items()}
        reasons.append(
            DocumentReason(
                item.node,
                titles.get(item.node, ""),
                item.probability,
                item.origin,
                item.path,
                item.support,
                dict(sorted(shares.items(), key=lambda share: -abs(share[1]))),
                _moved(edges_of(item.path, item.support), moves),
            )
        )
    return Explanation(turn, tuple(reasons), titles)


def _moved(
    edges: Sequence[PathEdge], moves: Mapping[EdgeName, tuple[Move, ...]]
) -> tuple[EdgeMoves, ...]:
    names = [(edge.source, edge.target, edge.kind) for edge in edges]
    return tuple(EdgeMoves(*name, moves[name][:MOST_MOVES]) for name in names if name in moves)
