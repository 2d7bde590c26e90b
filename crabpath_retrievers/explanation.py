"""Why each document of a turn came, in a form for people and for programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crabpath_retrievers.graph import Node
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.trajectory import PathEdge, Turn


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
    """

    id: str
    title: str
    probability: float
    origin: str
    path: tuple[PathEdge, ...]
    support: PathEdge | None
    contributions: dict[str, float]


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
            "documents": [asdict(document) for document in self.documents],
        }


def nodes_shown(turn: Turn) -> list[str]:
    """Ids of the nodes that an explanation names."""
    shown = {item.node for item in turn.returned}
    for item in turn.returned:
        edges = (*item.path, item.support) if item.support else item.path
        shown |= {node for edge in edges for node in (edge.source, edge.target)}
    return sorted(shown)


def explain(turn: Turn, nodes: Mapping[str, Node], ranker: Ranker) -> Explanation:
    """Put a turn record and the ranker's weights together.

    Args:
        turn: The record.
        nodes: The nodes it mentions that still exist, by id.
        ranker: Gives the weight of each feature.
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
            )
        )
    return Explanation(turn, tuple(reasons), titles)
