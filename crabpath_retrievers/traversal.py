"""The walk: from entry nodes along pointers, within budgets (document 001 §2.4–2.5).

Written once as a generator; a driver reads the edges of each frontier and asks the router.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crabpath_retrievers.config import TierSettings, WalkSettings
from crabpath_retrievers.driver import Steps, perform, perform_either
from crabpath_retrievers.graph import EdgeKind, NodeHead, Pointer, Tier, Vector
from crabpath_retrievers.routing.policy import Choice, Decision, Router, RoutingRequest
from crabpath_retrievers.trajectory import Candidate, PathEdge, Step

_DIGITS = 5
_BACKWARD = frozenset({EdgeKind.MENTIONED_BY, EdgeKind.LINKED_BY})

ReadEdges = Callable[[Sequence[int]], tuple[Sequence[Pointer], dict[int, float]]]
"""Reads the pointers that leave all given nodes, and the learned weight of STOP per node."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Evidence for a node: a pointer that leads to it.

    Attributes:
        target: The node.
        kind: Why the pointer exists.
        strength: Energy of the node it leaves times its weight, at least 0.
        hop: 1 from a seed, 2 or more further out.
    """

    target: NodeHead
    kind: EdgeKind
    strength: float
    hop: int


@dataclass(frozen=True, slots=True)
class Visit:
    """A visited node: how strongly and along which route it was entered."""

    head: NodeHead
    energy: float
    hop: int
    path: tuple[PathEdge, ...]


@dataclass(slots=True)
class Walk:
    """What a walk found.

    Attributes:
        visits: By node key, in the order of entry.
        steps: The decisions, in order.
        arrivals: Every supporting pointer that was read, followed or not.
        inhibition: Per node key, how strongly pointers advise against it, in [0, 1].
    """

    visits: dict[int, Visit] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    inhibition: dict[int, tuple[NodeHead, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Option:
    """A pointer with what this walk makes of it."""

    pointer: Pointer
    weight: float
    relevance: float
    tier: Tier


class Walker:
    """Walks once. Create a new one for every query."""

    def __init__(
        self,
        query: str,
        vector: Vector,
        *,
        read_edges: ReadEdges,
        router: Router,
        walk: WalkSettings,
        tiers: TierSettings,
        temperature: float,
        callbacks: Any = None,
    ) -> None:
        """Prepare a walk for one query.

        Args:
            query: What was asked; only the router reads it.
            vector: Unit query vector, shape ``[d]``.
            read_edges: Reads the outgoing edges of a whole frontier at once.
            router: Decides habitual pointers.
            walk: Budgets and damping.
            tiers: Thresholds on weights.
            temperature: τ of the policy, kept in the record.
            callbacks: Handed to the router as they are.
        """
        self._query, self._vector = query, vector
        self._read, self._router = read_edges, router
        self._settings, self._tiers, self._temperature = walk, tiers, temperature
        self._callbacks = callbacks
        self._walk = Walk()
        self._entered: Counter[int] = Counter()
        self._used: Counter[tuple[int, int, EdgeKind]] = Counter()

    def steps(self, entries: Iterable[tuple[NodeHead, float]]) -> Steps[Walk]:
        """Walk from entry nodes, given with their energy, best first."""
        for head, energy in entries:
            self._enter(Visit(head, energy, 0, ()))
        frontier = list(self._walk.visits)
        barren = 0
        for hop in range(1, self._settings.max_hops + 1):
            if not frontier or barren >= self._settings.barren_hops or not self._room():
                break
            frontier = yield from self._hop(frontier, hop)
            barren = 0 if frontier else barren + 1
        return self._walk

    def _room(self) -> int:
        return self._settings.max_nodes - len(self._walk.visits)

    def _enter(self, visit: Visit) -> None:
        self._entered[visit.head.key] += 1
        self._walk.visits.setdefault(visit.head.key, visit)

    def _hop(self, frontier: Sequence[int], hop: int) -> Steps[list[int]]:
        pointers, stops = yield from perform(self._read, frontier)
        options = self._options(pointers)
        for key in frontier:
            self._gather(self._walk.visits[key], options.get(key, ()), hop)
        choices = {
            key: choice
            for key in frontier
            if (choice := self._choice(key, options.get(key, ()), stops.get(key, 0.0)))
        }
        decisions = yield from self._route(list(choices.values()))
        decided = dict(zip(choices, decisions, strict=True))
        reached: list[int] = []
        for key in frontier:
            if options.get(key):
                reached += self._follow(key, options[key], choices.get(key), decided.get(key), hop)
        return list(dict.fromkeys(reached))

    def _route(self, choices: Sequence[Choice]) -> Steps[Sequence[Decision]]:
        if not choices:
            return []
        request = RoutingRequest(
            self._query, tuple(choices), self._settings.max_new_nodes, self._callbacks
        )
        decisions = yield from perform_either(
            lambda: self._router.route(request), lambda: self._router.aroute(request)
        )
        return decisions

    def _options(self, pointers: Sequence[Pointer]) -> dict[int, list[_Option]]:
        """Pointers by the node they leave, the strongest first, one per target and sign."""
        if not pointers:
            return {}
        targets = np.stack([pointer.target.vector for pointer in pointers])
        relevance = np.asarray(targets, dtype=np.float32) @ self._vector
        found: dict[tuple[int, int, bool], _Option] = {}
        for pointer, r in zip(pointers, relevance.tolist(), strict=True):
            weight = self._damped(pointer)
            option = _Option(pointer, weight, r, self._tiers.tier_of(weight))
            place = (pointer.source, pointer.target.key, option.tier is Tier.INHIBITORY)
            if place not in found or abs(found[place].weight) < abs(weight):
                found[place] = option
        grouped: dict[int, list[_Option]] = {}
        for option in sorted(found.values(), key=lambda o: -(o.weight + o.relevance)):
            grouped.setdefault(option.pointer.source, []).append(option)
        return grouped

    def _damped(self, pointer: Pointer) -> float:
        """``w · λ^k`` for an edge reused k times in this episode (document 003 §3)."""
        reuses = self._used[(pointer.source, pointer.target.key, pointer.kind)]
        return float(pointer.weight * self._settings.damping**reuses)

    def _gather(self, visit: Visit, options: Sequence[_Option], hop: int) -> None:
        """Note what the pointers of a node say about their targets."""
        for option in options:
            target, kind = option.pointer.target, option.pointer.kind
            if option.tier is Tier.INHIBITORY:
                advice = min(1.0, -option.weight * min(1.0, max(0.0, visit.energy)))
                _, known = self._walk.inhibition.get(target.key, (target, 0.0))
                self._walk.inhibition[target.key] = (target, max(known, advice))
            elif option.weight > 0:
                # A name that many texts mention says little about each of them.
                rarity = visit.head.rarity if kind in _BACKWARD else 1.0
                strength = visit.energy * option.weight * rarity
                self._walk.arrivals.append(Arrival(target, kind, strength, hop))

    def _choice(self, key: int, options: Sequence[_Option], stop_weight: float) -> Choice | None:
        habitual = [o for o in options if o.tier is Tier.HABITUAL and self._may_enter(o)]
        if not habitual:
            return None
        return Choice(
            source=self._walk.visits[key].head.id,
            pointers=tuple(o.pointer for o in habitual),
            relevance=np.array([o.relevance for o in habitual]),
            weights=np.array([o.weight for o in habitual]),
            stop_weight=stop_weight,
            inhibited=tuple(o.pointer.target.title for o in options if o.tier is Tier.INHIBITORY),
        )

    def _may_enter(self, option: _Option) -> bool:
        return self._entered[option.pointer.target.key] < self._settings.visits_per_node

    def _follow(
        self,
        key: int,
        options: Sequence[_Option],
        choice: Choice | None,
        decision: Decision | None,
        hop: int,
    ) -> list[int]:
        """Enter what was chosen, as far as the budgets allow, and record the step."""
        offered = list(choice.pointers) if choice else []
        probability = (
            {p.target.key: float(decision.probabilities[i]) for i, p in enumerate(offered)}
            if decision
            else {}
        )
        reflexes = [o for o in options if o.tier is Tier.REFLEX]
        by_target = {o.pointer.target.key: o for o in options if o.tier is Tier.HABITUAL}
        wanted = [by_target[offered[i].target.key] for i in (decision.followed if decision else ())]
        entered: dict[Tier, list[_Option]] = {Tier.REFLEX: [], Tier.HABITUAL: []}
        new = 0
        for option in (*reflexes, *wanted):
            if new >= self._settings.max_new_nodes or not self._room():
                break
            if self._may_enter(option):
                self._take(key, option, probability.get(option.pointer.target.key, 1.0), hop)
                entered[option.tier].append(option)
                new += 1
        cut = len(entered[Tier.HABITUAL]) < len(wanted)
        self._record(key, options, decision, probability, entered, hop, cut=cut)
        return [o.pointer.target.key for o in (*entered[Tier.REFLEX], *entered[Tier.HABITUAL])]

    def _take(self, key: int, option: _Option, probability: float, hop: int) -> None:
        visit, pointer = self._walk.visits[key], option.pointer
        self._used[(pointer.source, pointer.target.key, pointer.kind)] += 1
        edge = PathEdge(
            visit.head.id,
            pointer.target.id,
            pointer.kind.label,
            round(option.weight, _DIGITS),
            option.tier.value,
            round(probability, _DIGITS),
        )
        energy = visit.energy * option.weight
        self._enter(Visit(pointer.target, energy, hop, (*visit.path, edge)))

    def _record(
        self,
        key: int,
        options: Sequence[_Option],
        decision: Decision | None,
        probability: dict[int, float],
        entered: dict[Tier, list[_Option]],
        hop: int,
        *,
        cut: bool,
    ) -> None:
        candidates = tuple(
            Candidate(
                option.pointer.target.id,
                option.pointer.kind.label,
                round(option.weight, _DIGITS),
                round(option.relevance, _DIGITS),
                round(_recorded_probability(option, probability), _DIGITS),
                option.tier.value,
            )
            for option in options
            if option.tier is not Tier.DORMANT
        )
        if not candidates:
            return
        stop = float(decision.probabilities[-1]) if decision else 0.0
        self._walk.steps.append(
            Step(
                node=self._walk.visits[key].head.id,
                hop=hop - 1,
                candidates=candidates,
                chosen=tuple(o.pointer.target.id for o in entered[Tier.HABITUAL]),
                reflexes=tuple(o.pointer.target.id for o in entered[Tier.REFLEX]),
                stopped=bool(decision and decision.stopped and not cut),
                stop_weight=0.0,
                stop_probability=round(stop, _DIGITS),
                temperature=self._temperature,
                decided_by=decision.decided_by if decision else "reflex",
            )
        )


def _recorded_probability(option: _Option, probability: dict[int, float]) -> float:
    if option.tier is Tier.REFLEX:
        return 1.0
    return probability.get(option.pointer.target.key, 0.0) if option.tier is Tier.HABITUAL else 0.0
