"""The walk: from entry nodes along pointers, within budgets (document 001 §2.4–2.5).

Written once as a generator; a driver reads the edges of each frontier and asks the router.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from crabpath_retrievers.config import TierSettings, WalkSettings
from crabpath_retrievers.driver import Steps, perform, perform_either
from crabpath_retrievers.graph import EdgeKind, NodeHead, Pointer, Tier, Vector, cosines
from crabpath_retrievers.offer import Offer, Option, probability
from crabpath_retrievers.routing.policy import (
    Decision,
    Routed,
    Router,
    RoutingRequest,
    SoftmaxRouter,
)
from crabpath_retrievers.trajectory import Decider, Hop, LateSteps, PathEdge, Step
from crabpath_retrievers.usage import Usage

_DROPPED = 0.5  # a router's word about one query, against the 1 of an edge that outcomes made
_BACKWARD = frozenset({EdgeKind.MENTIONED_BY, EdgeKind.LINKED_BY})

ReadEdges = Callable[[Sequence[int]], tuple[Sequence[Pointer], dict[int, float]]]
"""Reads the pointers that leave all given nodes, and the learned weight of STOP per node."""


class Arrival(NamedTuple):
    """Evidence for a node: a pointer that leads to it.

    Attributes:
        source: The node it leaves.
        option: The pointer; it leads to the node.
        strength: Energy of the node it leaves times its weight, at least 0.
        hop: 1 from a seed, 2 or more further out.
    """

    source: NodeHead
    option: Option
    strength: float
    hop: int

    @property
    def target(self) -> NodeHead:
        """The node that it leads to."""
        return self.option.pointer.target

    @property
    def kind(self) -> EdgeKind:
        """Why the pointer exists."""
        return self.option.pointer.kind


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
        decisions: Describe what was decided, in order.
        arrivals: Every supporting pointer that was read, followed or not.
        inhibition: Per node key, how strongly pointers advise against it, in [0, 1].
        usage: What the router cost.
        notes: What the router had to say.
        chosen: Keys of nodes that a model picked.
    """

    visits: dict[int, Visit] = field(default_factory=dict)
    decisions: list[Callable[[], Step]] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    inhibition: dict[int, tuple[NodeHead, float]] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    notes: list[str] = field(default_factory=list)
    chosen: set[int] = field(default_factory=set)

    @property
    def steps(self) -> LateSteps:
        """The decisions as records."""
        return LateSteps(self.decisions)


class Walker:
    """Walks once. Create a new one for every query."""

    def __init__(
        self,
        asked: RoutingRequest,
        vector: Vector,
        *,
        read_edges: ReadEdges,
        router: Router,
        walk: WalkSettings,
        tiers: TierSettings,
        temperature: float,
        on_hop: Callable[[Hop], object] | None = None,
    ) -> None:
        """Prepare a walk for one query.

        Args:
            asked: What is asked, for the router; the walk fills in the choices.
            vector: Unit query vector, shape ``[d]``.
            read_edges: Reads the outgoing edges of a whole frontier at once.
            router: Decides habitual pointers.
            walk: Budgets and damping.
            tiers: Thresholds on weights.
            temperature: τ of the policy, kept in the record.
            on_hop: Told of every hop, in the thread that walks: in async calls mostly a worker's.
        """
        self._asked, self._vector = asked, vector
        self._read, self._router = read_edges, router
        self._settings, self._tiers, self._temperature = walk, tiers, temperature
        self._on_hop = on_hop
        self._walk = Walk()
        self._entered: Counter[int] = Counter()
        self._used: Counter[tuple[int, int, EdgeKind]] = Counter()

    def steps(self, entries: Iterable[tuple[NodeHead, float]]) -> Steps[Walk]:
        """Walk from entry nodes, given with their energy, best first."""
        for head, energy in islice(entries, self._settings.max_nodes):
            self._enter(Visit(head, energy, 0, ()))
        frontier = list(self._walk.visits)
        barren = 0
        for hop in range(1, self._settings.max_hops + 1):
            if not frontier or barren >= self._settings.max_empty_hops or not self._room():
                break
            known = len(self._walk.visits)
            reached = yield from self._hop(frontier, hop)
            least = self._settings.min_energy
            frontier = [key for key in reached if self._walk.visits[key].energy >= least]
            barren = 0 if len(self._walk.visits) > known else barren + 1
        return self._walk

    def _hop(self, frontier: Sequence[int], hop: int) -> Steps[list[int]]:
        pointers, stops = yield from perform(self._read, frontier)
        options = self._options(pointers)
        for key in frontier:
            self._gather(self._walk.visits[key], options.get(key, ()), hop)
        closed = self._closed()
        offers = [
            Offer.of(self._walk.visits[key].head, options[key], stops.get(key, 0.0), closed=closed)
            for key in frontier
            if key in options
        ]
        decisions = yield from self._decide(offers, hop)
        reached: dict[int, None] = {}
        for offer in offers:
            reached |= dict.fromkeys(self._follow(offer, decisions.get(offer.head.key), hop))
        if self._on_hop is not None:
            self._on_hop(self._told(hop, frontier, reached, decisions.values()))
        return list(reached)

    def _told(
        self, hop: int, frontier: Iterable[int], reached: Iterable[int], decided: Iterable[Decision]
    ) -> Hop:
        visits = self._walk.visits
        deciders = {decision.decided_by for decision in decided}
        by: Decider = "policy" if deciders else "reflex"
        return Hop(
            hop,
            tuple(visits[key].head.id for key in frontier),
            tuple(visits[key].path[-1] for key in reached if visits[key].path),
            "chat_model" if "chat_model" in deciders else by,
        )

    def _decide(self, offers: Sequence[Offer], hop: int) -> Steps[dict[int, Decision]]:
        """Ask the router once for the whole frontier; decisions by key of the node."""
        open_offers = [offer for offer in offers if offer.habitual]
        if not open_offers:
            return {}
        usage, visits = self._walk.usage, self._walk.visits.values()
        request = replace(
            self._asked,
            choices=tuple(offer.choice() for offer in open_offers),
            budget=self._settings.max_new_nodes,
            calls=usage.calls + usage.cached_calls,
            entries=tuple((v.head, v.energy) for v in visits) if hop == 1 else (),
        )
        if type(self._router) is SoftmaxRouter:  # it asks nobody
            routed = self._router.route(request)
        else:
            routed = yield from perform_either(
                lambda: self._router.route(request), lambda: self._router.aroute(request)
            )
        self._heed(routed, open_offers)
        return {o.head.key: d for o, d in zip(open_offers, routed.decisions, strict=True)}

    def _heed(self, routed: Routed, offers: Iterable[Offer]) -> None:
        """Note what the router costs, says and advises against."""
        self._walk.usage += routed.usage
        self._walk.notes += routed.notes
        self._walk.chosen |= routed.chosen
        if routed.dropped:
            offered = [o.pointer.target for offer in offers for o in offer.habitual]
            for target in (*offered, *(visit.head for visit in self._walk.visits.values())):
                if target.key in routed.dropped:
                    self._advise(target, _DROPPED)

    def _options(self, pointers: Sequence[Pointer]) -> dict[int, list[Option]]:
        """All pointers by the node they leave."""
        if not pointers:
            return {}
        relevance = cosines([pointer.target.vector for pointer in pointers], self._vector)
        weights = [self._damped(pointer) for pointer in pointers]
        tiers = map(self._tiers.tier_of, weights)
        columns = zip(pointers, weights, relevance, tiers, strict=True)
        grouped: dict[int, list[Option]] = {}
        for option in map(partial(tuple.__new__, Option), columns):
            grouped.setdefault(option.pointer.source, []).append(option)
        return grouped

    def _damped(self, pointer: Pointer) -> float:
        """``w · λ^k`` for an edge reused k times in this episode (document 003 §3)."""
        if self._settings.max_visits_per_node == 1:
            return pointer.weight
        reuses = self._used[(pointer.source, pointer.target.key, pointer.kind)]
        return float(pointer.weight * self._settings.damping**reuses)

    def _gather(self, visit: Visit, options: Sequence[Option], hop: int) -> None:
        """Note what the pointers of a node say about their targets."""
        head, energy, rarity = visit.head, visit.energy, visit.head.rarity
        for option in options:
            pointer, weight, _, tier = option
            if tier is Tier.INHIBITORY:
                self._advise(pointer.target, -weight * min(1.0, max(0.0, energy)))
            elif weight > 0:
                strength = energy * weight
                # A name that many texts mention says little about each of them.
                if pointer.kind in _BACKWARD:
                    strength *= rarity
                self._walk.arrivals.append(Arrival(head, option, strength, hop))

    def _advise(self, target: NodeHead, advice: float) -> None:
        _, known = self._walk.inhibition.get(target.key, (target, 0.0))
        self._walk.inhibition[target.key] = (target, max(known, min(1.0, advice)))

    def _follow(self, offer: Offer, decision: Decision | None, hop: int) -> list[int]:
        """Enter what was chosen, as far as the budgets allow, and record the step."""
        followed = decision.followed if decision else ()
        wanted = (*offer.reflexes, *(offer.habitual[index] for index in followed))
        chances = offer.probabilities(decision) if wanted else {}
        entered: list[Option] = []
        cut = False
        for option in wanted:
            cut = len(entered) >= self._settings.max_new_nodes or not self._room()
            if cut:
                break
            if self._may_enter(option.key):
                self._take(offer.head, option, probability(option, chances), hop)
                entered.append(option)
        if any(option.tier is not Tier.DORMANT for option in offer.options):
            self._walk.decisions.append(
                partial(
                    offer.step,
                    decision,
                    tuple(entered),
                    hop=hop - 1,
                    temperature=self._temperature,
                    cut=cut,
                )
            )
        return [option.key for option in entered]

    def _take(self, source: NodeHead, option: Option, probability: float, hop: int) -> None:
        visit, pointer = self._walk.visits[source.key], option.pointer
        self._used[(pointer.source, pointer.target.key, pointer.kind)] += 1
        edge = option.edge(source, probability)
        energy = visit.energy * option.weight
        self._enter(Visit(pointer.target, energy, hop, (*visit.path, edge)))

    def _enter(self, visit: Visit) -> None:
        self._entered[visit.head.key] += 1
        self._walk.visits.setdefault(visit.head.key, visit)

    def _closed(self) -> set[int]:
        return {key for key in self._entered if not self._may_enter(key)}

    def _may_enter(self, key: int) -> bool:
        return self._entered[key] < self._settings.max_visits_per_node

    def _room(self) -> int:
        return self._settings.max_nodes - len(self._walk.visits)
