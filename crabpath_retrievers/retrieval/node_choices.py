"""The edges of one visited node: which of them a router decides, and the record of the decision."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.core.graph import NodeHead, Tier, WalkEdge
from crabpath_retrievers.core.turn import ConsideredEdge, PathEdge, WalkStep
from crabpath_retrievers.routing.policy import Decision, RouterChoice

_DIGITS = 5
_TIERS = {tier: tier.value for tier in Tier}


@dataclass(frozen=True, slots=True)
class NodeChoices:
    """The edges of one node, best first, and the decisions that they allow.

    Attributes:
        head: The node.
        edges: At most one per target and sign.
        habitual: Those that the router decides.
        stop_weight: Learned weight of STOP at this node.
    """

    head: NodeHead
    edges: tuple[WalkEdge, ...]
    habitual: tuple[WalkEdge, ...]
    stop_weight: float

    @classmethod
    def from_edges(
        cls,
        head: NodeHead,
        edges: Sequence[WalkEdge],
        stop_weight: float,
        *,
        closed: AbstractSet[int],
    ) -> "NodeChoices":
        """Rank the edges of a node by weight plus relevance.

        Args:
            head: The node.
            edges: Its edges; of several to one target the strongest of each sign is kept.
            stop_weight: Learned weight of STOP.
            closed: Keys of nodes that this walk may not enter again.
        """
        ranked = sorted(_keep_strongest(edges), key=lambda e: -(e.weight + e.relevance))
        habitual = [
            edge for edge in ranked if edge.tier is Tier.HABITUAL and edge.target.key not in closed
        ]
        return cls(head, tuple(ranked), tuple(habitual), stop_weight)

    @property
    def reflexes(self) -> tuple[WalkEdge, ...]:
        """Edges that are followed without a decision."""
        return tuple([edge for edge in self.edges if edge.tier is Tier.REFLEX])

    def to_choice(self) -> RouterChoice:
        """The habitual edges in the form that a router decides."""
        inhibited = [e.outgoing for e in self.edges if e.tier is Tier.INHIBITORY]
        _, edges, weights, relevance, *_ = zip(*self.habitual, strict=True)
        return RouterChoice(
            source=self.head.id,
            edges=edges,
            relevance=np.array(relevance),
            weights=np.array(weights),
            stop_weight=self.stop_weight,
            inhibited=tuple(inhibited),
        )

    def probabilities(self, decision: Decision | None) -> dict[int, float]:
        """π of the habitual edges by key of the target; empty without a decision."""
        if decision is None:
            return {}
        values = decision.probabilities.tolist()
        return {e.target.key: p for e, p in zip(self.habitual, values, strict=False)}

    def to_step(
        self,
        decision: Decision | None,
        followed: Sequence[WalkEdge],
        *,
        hop: int,
        temperature: float,
        cut: bool = False,
    ) -> WalkStep:
        """The record of the decision at this node.

        Args:
            decision: Decision of the router; None when there was nothing to decide.
            followed: Edges that the walk followed.
            hop: Distance of this node from its seed.
            temperature: τ of the policy.
            cut: Whether a budget of the walk ended the choice.
        """
        chosen = [edge for edge in followed if edge.tier is Tier.HABITUAL]
        probabilities = self.probabilities(decision)
        return WalkStep(
            node=self.head.id,
            hop=hop,
            candidates=tuple(
                _to_record(edge, follow_probability(edge, probabilities))
                for edge in self.edges
                if edge.tier is not Tier.DORMANT
            ),
            chosen=tuple(edge.target.id for edge in chosen),
            reflexes=tuple(e.target.id for e in followed if e.tier is Tier.REFLEX),
            stopped=decision is not None and decision.stopped and not cut,
            stop_weight=round(self.stop_weight, _DIGITS),
            stop_probability=0.0 if decision is None else _round(decision.probabilities[-1]),
            temperature=temperature,
            decided_by="reflex" if decision is None else decision.decided_by,
        )


def _keep_strongest(edges: Sequence[WalkEdge]) -> Collection[WalkEdge]:
    """Of several edges to one target the strongest of each sign."""
    if len({edge.target.key for edge in edges}) == len(edges):
        return edges
    strongest: dict[tuple[int, bool], WalkEdge] = {}
    for edge in edges:
        key = (edge.target.key, edge.tier is Tier.INHIBITORY)
        if key not in strongest or abs(strongest[key].weight) < abs(edge.weight):
            strongest[key] = edge
    return strongest.values()


def follow_probability(edge: WalkEdge, probabilities: Mapping[int, float]) -> float:
    """Probability of following an edge: 1 for a reflex, π for a habitual edge, else 0.

    Args:
        edge: The edge.
        probabilities: π by key of the target, from :meth:`NodeChoices.probabilities`.
    """
    if edge.tier is Tier.REFLEX:
        return 1.0
    return probabilities.get(edge.target.key, 0.0) if edge.tier is Tier.HABITUAL else 0.0


def to_path_edge(edge: WalkEdge, probability: float) -> PathEdge:
    """The edge as a hop of a recorded route."""
    return PathEdge(
        edge.source.id,
        edge.target.id,
        edge.kind.label,
        round(edge.weight, _DIGITS),
        _TIERS[edge.tier],
        round(probability, _DIGITS),
    )


def _to_record(edge: WalkEdge, probability: float) -> ConsideredEdge:
    return ConsideredEdge(
        edge.target.id,
        edge.kind.label,
        round(edge.weight, _DIGITS),
        round(edge.relevance, _DIGITS),
        round(probability, _DIGITS),
        _TIERS[edge.tier],
    )


def _round(value: float) -> float:
    return round(float(value), _DIGITS)
