"""The walk: from entry nodes along edges, hop by hop and within budgets [CrabPath].

Written once as a generator: a driver reads the edges of each frontier and asks the router.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, repeat

import numpy as np

from crabpath_retrievers.config import TierSettings, WalkSettings
from crabpath_retrievers.core.calls import Operations, perform, perform_sync_or_async
from crabpath_retrievers.core.records import (
    DIGITS,
    LEARNED_KINDS,
    ConsideredEdge,
    Decider,
    EdgeKind,
    Hop,
    LazySteps,
    ModelUsage,
    NodeHead,
    OutgoingEdge,
    PathEdge,
    Tier,
    Vector,
    WalkEdge,
    WalkStep,
    compare_vectors,
)
from crabpath_retrievers.routing import (
    Decision,
    Router,
    RouterChoice,
    RoutingRequest,
    RoutingResult,
    SoftmaxRouter,
    require_valid,
)

_TIERS = {tier: tier.value for tier in Tier}
_REJECTED = 0.5  # inhibition by a router for one query; an edge learned from outcomes reaches 1
_BACKWARD = frozenset({EdgeKind.MENTIONED_BY, EdgeKind.LINKED_BY})

ReadEdges = Callable[[Sequence[int]], tuple[Sequence[OutgoingEdge], dict[int, float]]]
"""Reads the outgoing edges of all given nodes, and the learned weight of STOP by node."""


@dataclass(frozen=True, slots=True)
class VisitedNode:
    """A node that the walk entered.

    Attributes:
        energy: Entry score of its seed times the weights along ``path``.
        hop: Distance from its seed.
        path: Route from the seed; empty for the seed itself.
    """

    head: NodeHead
    energy: float
    hop: int
    path: tuple[PathEdge, ...]


@dataclass(slots=True)
class Walk:
    """The result of a walk.

    Attributes:
        visits: Visited nodes by key, in the order of entry.
        decisions: Build the records of the decisions, in order.
        support: Every edge of positive weight that was read, followed or not.
        inhibition: By node key, the node and the strongest inhibition of it, in [0, 1].
        usage: Calls, tokens and cost of the router.
        notes: Remarks of the router for the turn record.
        chosen: Keys of nodes that a chat model chose.
    """

    visits: dict[int, VisitedNode] = field(default_factory=dict)
    decisions: list[Callable[[], WalkStep]] = field(default_factory=list)
    support: list[WalkEdge] = field(default_factory=list)
    inhibition: dict[int, tuple[NodeHead, float]] = field(default_factory=dict)
    usage: ModelUsage = field(default_factory=ModelUsage)
    notes: list[str] = field(default_factory=list)
    chosen: set[int] = field(default_factory=set)

    @property
    def steps(self) -> LazySteps:
        """Records of the decisions, built when they are first read."""
        return LazySteps(self.decisions)


@dataclass(frozen=True, slots=True)
class NodeChoices:
    """The edges of one node, best first, and the decisions that they allow.

    Attributes:
        edges: At most one per target and sign.
        reflexes: The edges that are followed without a decision.
        habitual: The edges that the router decides on.
        stop_weight: Learned weight of STOP at this node.
    """

    head: NodeHead
    edges: list[WalkEdge]
    reflexes: list[WalkEdge]
    habitual: list[WalkEdge]
    stop_weight: float

    @classmethod
    def from_edges(
        cls,
        head: NodeHead,
        edges: Sequence[WalkEdge],
        stop_weight: float,
        closed: Container[int],
    ) -> "NodeChoices":
        """Rank the edges of a node by weight plus relevance.

        Of several edges to one target the strongest of each sign is kept. Nodes with a key in
        ``closed`` may not be entered again, so no habitual edge leads to them. ``stop_weight`` is
        the learned weight of STOP.
        """
        if len({edge.target.key for edge in edges}) < len(edges):
            strongest: dict[tuple[int, bool], WalkEdge] = {}
            for edge in edges:
                key = (edge.target.key, edge.tier is Tier.INHIBITORY)
                if key not in strongest or abs(strongest[key].weight) < abs(edge.weight):
                    strongest[key] = edge
            edges = list(strongest.values())
        ranked = sorted(edges, key=lambda e: -(e.weight + e.relevance))
        reflexes = [edge for edge in ranked if edge.tier is Tier.REFLEX]
        habitual = [
            edge for edge in ranked if edge.tier is Tier.HABITUAL and edge.target.key not in closed
        ]
        return cls(head, ranked, reflexes, habitual, stop_weight)

    def to_choice(self) -> RouterChoice:
        """Convert the habitual edges to the choice that a router decides."""
        return RouterChoice(
            source=self.head.id,
            edges=tuple(self.habitual),
            relevance=np.array([edge.relevance for edge in self.habitual]),
            weights=np.array([edge.weight for edge in self.habitual]),
            stop_weight=self.stop_weight,
            inhibited=tuple([e for e in self.edges if e.tier is Tier.INHIBITORY]),
        )

    def probabilities(self, decision: Decision | None) -> dict[int, float]:
        """Return π of the habitual edges by key of the target; empty without a decision."""
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
        """Make the record of the decision at this node; None records that nothing was to decide.

        Args:
            decision: What the router decided; None if there was nothing to decide.
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
            stop_weight=round(self.stop_weight, DIGITS),
            stop_probability=0.0 if decision is None else _round(decision.probabilities[-1]),
            temperature=temperature,
            decided_by="reflex" if decision is None else decision.decided_by,
        )


def follow_probability(edge: WalkEdge, probabilities: Mapping[int, float]) -> float:
    """Return the probability of following an edge: 1 for a reflex, π for a habitual one, else 0.

    ``probabilities`` are π by key of the target.
    """
    if edge.tier is Tier.REFLEX:
        return 1.0
    return probabilities.get(edge.target.key, 0.0) if edge.tier is Tier.HABITUAL else 0.0


def to_path_edge(edge: WalkEdge, probability: float) -> PathEdge:
    """Convert an edge, followed with this probability, to one of a recorded route."""
    return PathEdge(
        edge.source.id,
        edge.target.id,
        edge.kind.label,
        round(edge.weight, DIGITS),
        _TIERS[edge.tier],
        round(probability, DIGITS),
    )


def _to_record(edge: WalkEdge, probability: float) -> ConsideredEdge:
    return ConsideredEdge(
        edge.target.id,
        edge.kind.label,
        round(edge.weight, DIGITS),
        round(edge.relevance, DIGITS),
        round(probability, DIGITS),
        _TIERS[edge.tier],
    )


def _round(value: float) -> float:
    return round(float(value), DIGITS)


class Walker:
    """Performs one walk; create a new one for every query."""

    def __init__(  # noqa: PLR0913  a walk has a query, readers, and settings of three topics
        self,
        request: RoutingRequest,
        vector: Vector,
        *,
        read_edges: ReadEdges,
        router: Router,
        walk: WalkSettings,
        tiers: TierSettings,
        temperature: float,
        stretch: float = 1.0,
        on_hop: Callable[[Hop], object] | None = None,
    ) -> None:
        """Keep query, readers and settings of one walk.

        Args:
            vector: Unit vector of the query, shape ``[d]``.
            read_edges: Reads the edges of a whole frontier at once.
            on_hop: Called after every hop, in the thread that walks (in async calls a worker); None
                for nothing.
        """
        self._request = request
        self._compare = partial(compare_vectors, vector=vector, stretch=stretch)
        self._read, self._router = read_edges, router
        self._settings, self._tiers, self._temperature = walk, tiers, temperature
        self._on_hop = on_hop
        self._walk = Walk()
        self._entered: Counter[int] = Counter()
        self._followed: Counter[tuple[int, int, EdgeKind]] = Counter()

    def steps(self, entries: Iterable[tuple[NodeHead, float]]) -> Operations[Walk]:
        """Walk from entry nodes, given with their energy in [0, 1], best first."""
        for head, energy in islice(entries, self._settings.max_nodes):
            self._enter(VisitedNode(head, energy, 0, ()))
        frontier = list(self._walk.visits)
        empty_hops = 0
        for hop in range(1, self._settings.max_hops + 1):
            is_full = len(self._walk.visits) >= self._settings.max_nodes
            if not frontier or is_full or empty_hops >= self._settings.max_empty_hops:
                break
            before = len(self._walk.visits)
            reached = yield from self._walk_hop(frontier, hop)
            minimum = self._settings.min_energy
            frontier = [key for key in reached if self._walk.visits[key].energy >= minimum]
            empty_hops = 0 if len(self._walk.visits) > before else empty_hops + 1
        return self._walk

    def _walk_hop(self, frontier: Sequence[int], hop: int) -> Operations[list[int]]:
        outgoing, stops = yield from perform(self._read, frontier)
        edges = self._group_edges(outgoing, hop)
        limit = self._settings.max_visits_per_node
        closed = {key for key, times in self._entered.items() if times >= limit}
        nodes = []
        for key in frontier:
            if key in edges:
                visit = self._walk.visits[key]
                energy = min(1.0, max(0.0, visit.energy))
                for edge in edges[key]:
                    if edge.tier is Tier.INHIBITORY:
                        self._inhibit(edge.target, -edge.weight * energy)
                    elif edge.weight > 0:
                        self._walk.support.append(edge)
                stop = stops.get(key, 0.0)
                nodes.append(NodeChoices.from_edges(visit.head, edges[key], stop, closed))
        decisions = yield from self._decide(nodes, hop)
        reached: dict[int, None] = {}
        for node in nodes:
            reached |= dict.fromkeys(self._follow(node, decisions.get(node.head.key), hop))
        if self._on_hop is not None:
            self._on_hop(self._hop_event(hop, frontier, reached, decisions.values()))
        return list(reached)

    def _hop_event(
        self,
        hop: int,
        frontier: Iterable[int],
        reached: Iterable[int],
        decisions: Iterable[Decision],
    ) -> Hop:
        visits = self._walk.visits
        deciders = {decision.decided_by for decision in decisions}
        by: Decider = "policy" if deciders else "reflex"
        return Hop(
            hop,
            tuple(visits[key].head.id for key in frontier),
            tuple(visits[key].path[-1] for key in reached if visits[key].path),
            "chat_model" if "chat_model" in deciders else by,
        )

    def _decide(self, nodes: Sequence[NodeChoices], hop: int) -> Operations[dict[int, Decision]]:
        """Ask the router once for the whole frontier; return decisions by key of the node.

        Nodes without habitual edges have none.
        """
        undecided = [node for node in nodes if node.habitual]
        if not undecided:
            return {}
        usage, visits = self._walk.usage, self._walk.visits.values()
        request = replace(
            self._request,
            choices=tuple(node.to_choice() for node in undecided),
            budget=self._settings.max_new_nodes,
            calls=usage.calls + usage.cached_calls,
            entries=tuple((v.head, v.energy) for v in visits) if hop == 1 else (),
        )
        if type(self._router) is SoftmaxRouter:  # it does not block
            routed = self._router.route(request)
        else:
            routed = yield from perform_sync_or_async(
                lambda: self._router.route(request), lambda: self._router.aroute(request)
            )
            require_valid(self._router, request, routed)
        self._apply_router(routed, undecided)
        return {n.head.key: d for n, d in zip(undecided, routed.decisions, strict=True)}

    def _apply_router(self, routed: RoutingResult, nodes: Iterable[NodeChoices]) -> None:
        """Record cost, remarks and choices of the router; inhibit the nodes that it rejects.

        ``nodes`` have the edges that were offered.
        """
        self._walk.usage += routed.usage
        self._walk.notes += routed.notes
        self._walk.chosen |= routed.chosen
        if routed.dropped:
            offered = [edge.target for node in nodes for edge in node.habitual]
            for target in (*offered, *(visit.head for visit in self._walk.visits.values())):
                if target.key in routed.dropped:
                    self._inhibit(target, _REJECTED)

    def _group_edges(self, outgoing: Sequence[OutgoingEdge], hop: int) -> dict[int, list[WalkEdge]]:
        """Group the edges of a frontier by key of their source, with their value in this walk."""
        if not outgoing:
            return {}
        sources, targets, kinds, stored, priors = zip(*outgoing, strict=True)
        from_visits = [self._walk.visits[source] for source in sources]
        weights = list(stored)
        if self._settings.max_visits_per_node > 1:
            # w · λ^k for an edge that this walk has followed k times [CrabPath]
            damping = self._settings.damping
            followed = [self._followed[s, t.key, k] for s, t, k, *_ in outgoing]
            weights = [w * damping**times for w, times in zip(weights, followed, strict=True)]
        tiers = {weight: self._tiers.tier_of(weight) for weight in set(weights)}
        columns = zip(
            [visit.head for visit in from_visits],
            targets,
            kinds,
            weights,
            self._compare([target.vector for target in targets]),
            [tiers[weight] for weight in weights],
            [
                # A name that many texts mention says little about each of them.
                v.energy * weight * (v.head.rarity if kind in _BACKWARD else 1.0)
                if weight > 0
                else 0.0
                for v, weight, kind in zip(from_visits, weights, kinds, strict=True)
            ],
            repeat(hop),
            [
                0.0 if kind in LEARNED_KINDS else weight - prior
                for kind, weight, prior in zip(kinds, stored, priors, strict=True)
            ],
            strict=False,
        )
        grouped: dict[int, list[WalkEdge]] = {}
        # tuple.__new__ is what a named tuple calls, without checking its arguments again.
        edges = map(partial(tuple.__new__, WalkEdge), columns)
        for source, edge in zip(sources, edges, strict=True):
            grouped.setdefault(source, []).append(edge)
        return grouped

    def _inhibit(self, target: NodeHead, inhibition: float) -> None:
        _, known = self._walk.inhibition.get(target.key, (target, 0.0))
        self._walk.inhibition[target.key] = (target, max(known, min(1.0, inhibition)))

    def _follow(self, node: NodeChoices, decision: Decision | None, hop: int) -> list[int]:
        """Enter the chosen nodes as far as the budgets allow, and record the decision.

        Returns:
            Keys of the nodes that were entered.
        """
        indices = decision.followed if decision else ()
        wanted = (*node.reflexes, *(node.habitual[index] for index in indices))
        probabilities = node.probabilities(decision) if wanted else {}
        followed: list[WalkEdge] = []
        cut = False
        for edge in wanted:
            is_full = len(self._walk.visits) >= self._settings.max_nodes
            cut = is_full or len(followed) >= self._settings.max_new_nodes
            if cut:
                break
            if self._entered[edge.target.key] < self._settings.max_visits_per_node:
                self._take(edge, follow_probability(edge, probabilities), hop)
                followed.append(edge)
        if any(edge.tier is not Tier.DORMANT for edge in node.edges):
            self._walk.decisions.append(
                partial(
                    node.to_step,
                    decision,
                    tuple(followed),
                    hop=hop - 1,
                    temperature=self._temperature,
                    cut=cut,
                )
            )
        return [edge.target.key for edge in followed]

    def _take(self, edge: WalkEdge, probability: float, hop: int) -> None:
        visit = self._walk.visits[edge.source.key]
        self._followed[(edge.source.key, edge.target.key, edge.kind)] += 1
        path = (*visit.path, to_path_edge(edge, probability))
        self._enter(VisitedNode(edge.target, visit.energy * edge.weight, hop, path))

    def _enter(self, visit: VisitedNode) -> None:
        self._entered[visit.head.key] += 1
        self._walk.visits.setdefault(visit.head.key, visit)
