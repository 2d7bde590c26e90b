"""What one node offers a walk: its pointers with their tiers, the choice and its record."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.graph import NodeHead, Pointer, Tier
from crabpath_retrievers.routing.policy import Choice, Decision
from crabpath_retrievers.trajectory import Candidate, PathEdge, Step

_DIGITS = 5
_TIERS = {tier: tier.value for tier in Tier}


class Option(NamedTuple):
    """A pointer with what this walk makes of it.

    Attributes:
        weight: Effective weight after damping, in [-1, 1].
        relevance: Cosine of query and target.
    """

    pointer: Pointer
    weight: float
    relevance: float
    tier: Tier

    @property
    def key(self) -> int:
        """Key of the node that it leads to."""
        return self.pointer.target.key

    def edge(self, source: NodeHead, probability: float) -> PathEdge:
        """The pointer as records show it."""
        return PathEdge(
            source.id,
            self.pointer.target.id,
            self.pointer.kind.label,
            round(self.weight, _DIGITS),
            _TIERS[self.tier],
            round(probability, _DIGITS),
        )


@dataclass(frozen=True, slots=True)
class Offer:
    """The pointers of one node, best first, and what may be decided about them.

    Attributes:
        head: The node.
        options: One per target and sign.
        habitual: Those that the router decides.
        stop_weight: Learned weight of STOP at this node.
    """

    head: NodeHead
    options: tuple[Option, ...]
    habitual: tuple[Option, ...]
    stop_weight: float

    @classmethod
    def of(
        cls,
        head: NodeHead,
        options: Sequence[Option],
        stop_weight: float,
        *,
        closed: AbstractSet[int],
    ) -> "Offer":
        """Sort the pointers of a node.

        Args:
            head: The node.
            options: Its pointers; of several to one target the strongest of each sign counts.
            stop_weight: Learned weight of STOP.
            closed: Keys of nodes that may not be entered any more.
        """
        ranked = sorted(_strongest(options), key=lambda o: -(o.weight + o.relevance))
        habitual = [
            option
            for option in ranked
            if option.tier is Tier.HABITUAL and option.pointer.target.key not in closed
        ]
        return cls(head, tuple(ranked), tuple(habitual), stop_weight)

    @property
    def reflexes(self) -> tuple[Option, ...]:
        """Pointers that are followed without a decision."""
        return tuple([option for option in self.options if option.tier is Tier.REFLEX])

    def choice(self) -> Choice:
        """The decision to be made, for a router."""
        advised = [o.pointer for o in self.options if o.tier is Tier.INHIBITORY]
        pointers, weights, relevance, _ = zip(*self.habitual, strict=True)
        return Choice(
            source=self.head.id,
            pointers=pointers,
            relevance=np.array(relevance),
            weights=np.array(weights),
            stop_weight=self.stop_weight,
            inhibited=tuple(advised),
        )

    def probabilities(self, decision: Decision | None) -> dict[int, float]:
        """π by key of the target, for the habitual pointers; empty without a decision."""
        if decision is None:
            return {}
        values = decision.probabilities.tolist()
        return {o.key: p for o, p in zip(self.habitual, values, strict=False)}

    def step(
        self,
        decision: Decision | None,
        entered: Sequence[Option],
        *,
        hop: int,
        temperature: float,
        cut: bool = False,
    ) -> Step:
        """The record of what was decided here.

        Args:
            decision: What the router said; None when there was nothing to decide.
            entered: The pointers that were followed.
            hop: Distance of this node from its seed.
            temperature: τ of the policy.
            cut: Whether a budget of the walk ended the choice.
        """
        chosen = [option for option in entered if option.tier is Tier.HABITUAL]
        probabilities = self.probabilities(decision)
        return Step(
            node=self.head.id,
            hop=hop,
            candidates=tuple(
                _candidate(option, probability(option, probabilities))
                for option in self.options
                if option.tier is not Tier.DORMANT
            ),
            chosen=tuple(option.pointer.target.id for option in chosen),
            reflexes=tuple(o.pointer.target.id for o in entered if o.tier is Tier.REFLEX),
            stopped=decision is not None and decision.stopped and not cut,
            stop_weight=round(self.stop_weight, _DIGITS),
            stop_probability=0.0 if decision is None else _rounded(decision.probabilities[-1]),
            temperature=temperature,
            decided_by="reflex" if decision is None else decision.decided_by,
        )


def _strongest(options: Sequence[Option]) -> Collection[Option]:
    """Of several pointers to one target the strongest of each sign."""
    found: dict[tuple[int, bool], Option] = {}
    if len({option.pointer.target.key for option in options}) == len(options):
        return options
    for option in options:
        place = (option.key, option.tier is Tier.INHIBITORY)
        if place not in found or abs(found[place].weight) < abs(option.weight):
            found[place] = option
    return found.values()


def probability(option: Option, probabilities: Mapping[int, float]) -> float:
    """Of following a pointer: π for a habitual one, 1 for a reflex, 0 for what is closed.

    Args:
        option: The pointer.
        probabilities: π by key of the target, from :meth:`Offer.probabilities`.
    """
    if option.tier is Tier.REFLEX:
        return 1.0
    return probabilities.get(option.key, 0.0) if option.tier is Tier.HABITUAL else 0.0


def _candidate(option: Option, probability: float) -> Candidate:
    return Candidate(
        option.pointer.target.id,
        option.pointer.kind.label,
        round(option.weight, _DIGITS),
        round(option.relevance, _DIGITS),
        round(probability, _DIGITS),
        _TIERS[option.tier],
    )


def _rounded(value: float) -> float:
    return round(float(value), _DIGITS)
