"""Typed edges of a namespace, derived from its turns and feedback when somebody asks for them.

Feedback writes no typed edge: a replay of what was learned, in the order in which it was learned,
gives them all. Feedback that was undone has left no effects, so it does not count. Weights that a
user, maintenance or an agent episode set are stored; later feedback moves them on.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes import EdgeId, WeightDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import EdgeKind, StoredWeight, Turn
from crabpath_retrievers.learning.credit import share_by_recency
from crabpath_retrievers.parts.typed_graph.queries import (
    Direction,
    LearnedTurn,
    NodeFacts,
    StoredTypedEdge,
    TypedEdge,
    TypedQueries,
)
from crabpath_retrievers.parts.typed_graph.rules import (
    TypedEdgeContext,
    learn_episode_edges,
    learn_typed_edges,
)
from crabpath_retrievers.regions import RegionIndex
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.walk import Clock

if TYPE_CHECKING:
    from crabpath_retrievers.parts.region_mdp.agent_episodes import AgentEpisode

_KINDS = {kind.label: kind for kind in EdgeKind}
_MIN_WEIGHT = 1e-9  # a weight below is none
_FULL_BLAME = -math.log(0.7)  # nats by which a failure lowers the reward of the one that caused it
_DEFAULT_TRUST = LearningSettings().sources
_MAX_CACHED = 16  # namespaces
_MOST_TURNS_AGO = 10  # of a turn that another one follows on


class TypedGraph:
    """The typed edges of one namespace, by either end."""

    def __init__(self, edges: Mapping[tuple[int, int, EdgeKind], float]) -> None:
        """Keep effective weights, by keys of both ends and kind, with an index by node."""
        self.weights = {edge: w for edge, w in edges.items() if abs(w) > _MIN_WEIGHT}
        self._at: dict[Direction, defaultdict[int, list[tuple[int, EdgeKind, float]]]] = {
            "out": defaultdict(list),
            "in": defaultdict(list),
        }
        for (source, target, kind), weight in self.weights.items():
            self._at["out"][source].append((target, kind, weight))
            self._at["in"][target].append((source, kind, weight))

    def list_edges(
        self, keys: Iterable[int], kinds: Iterable[EdgeKind], direction: Direction
    ) -> list[TypedEdge]:
        """List the edges of some kinds at the nodes ``keys``, without ids of their other ends."""
        wanted, at = set(kinds), self._at[direction]
        return [
            TypedEdge(near, far, "", kind, weight)
            for near in keys
            for far, kind, weight in at.get(near, ())
            if kind in wanted
        ]


class TypedGraphs:
    """Derives the typed edges of namespaces, and keeps them until a namespace learns again."""

    def __init__(self, regions: RegionIndex, settings: LearningSettings) -> None:
        """Keep the regions of the corpus, and the settings to derive edges with."""
        self._regions, self._settings = regions, settings
        self._cache: dict[int, tuple[Clock, TypedGraph]] = {}

    def derive(self, read: Reader, clock: Clock) -> TypedGraph:
        """Return the typed edges of a namespace at this clock."""
        state = clock._replace(turn=0, notes=0)  # a query alone moves no edge
        known, graph = self._cache.get(clock.key, (None, None))
        if known != state or graph is None:
            graph = self._replay(read, clock)
            if len(self._cache) >= _MAX_CACHED:
                self._cache.pop(next(iter(self._cache)), None)
            self._cache[clock.key] = (state, graph)
        return graph

    def compute_episode_changes(self, read: Reader, episode: "AgentEpisode") -> list[WeightDelta]:
        """Compute how an agent's episode changes stored weights of typed edges.

        These are edges between successive states, and between their regions.
        """
        clock = read.walk.get_clock(episode.namespace)
        nodes = [state.node for state in episode.states]
        hubs = self._regions.hubs(self._regions.levels(read=read)[0], read=read)
        vectors = np.stack([state.vector for state in episode.states]).astype(np.float32)
        homes = [hubs.names[key] for key in hubs.nearest(vectors)]
        ids = {*homes, *(node for node in nodes if node)}
        facts = TypedQueries(read).get_facts(ids, clock.key)
        keys = {node: known.key for node, known in facts.items()}
        now = self.derive(read, clock).weights if clock.key else {}
        names = {key: node for node, key in keys.items()}
        existing = {
            (names[source], names[target], kind.label): weight
            for (source, target, kind), weight in now.items()
            if source in names and target in names
        }
        steps = learn_episode_edges(
            nodes, homes, episode.reward, existing, self._settings.typed_rate
        )
        stored = read.learned.weights(episode.namespace, sorted(names))
        changes: dict[tuple[int, int, EdgeKind], float] = {}
        for source, target, label, delta in steps:
            if source in keys and target in keys:
                edge = keys[source], keys[str(target)], _KINDS[label]
                # What feedback alone had taught becomes part of the weight that is set.
                learned = now.get(edge, 0.0) - stored.get(edge, 0.0)
                changes[edge] = changes.get(edge, learned) + delta
        return [WeightDelta(*edge, delta) for edge, delta in changes.items()]

    def _replay(self, read: Reader, clock: Clock) -> TypedGraph:
        typed = TypedQueries(read)
        turns, stored = typed.get_learned_turns(clock.key), typed.get_stored(clock.key)
        ids = {node for item in turns for node in _list_nodes(item.turn)}
        ids |= {node for edge in stored for node in edge.edge[:2]}
        hubs = _Homes(read, self._regions, clock)
        nodes = typed.get_facts(ids | set(hubs.names.values()), clock.key)
        replay = _Replay(self._settings, clock.exponent, nodes, hubs)
        replay.run(turns, stored)
        return TypedGraph(replay.get_weights())


class _Homes:
    """Finds the finest region of nodes, named by its hub; none in a small corpus."""

    def __init__(self, read: Reader, regions: RegionIndex, clock: Clock) -> None:
        levels = regions.levels(clock.hubs, read) if clock.hubs else ()
        self._hubs = regions.hubs(levels[0], clock.hubs, read) if levels else None
        self.names = self._hubs.names if self._hubs else {}

    def locate(self, item: LearnedTurn, nodes: Mapping[str, NodeFacts]) -> TypedEdgeContext:
        """Find the hubs of the query and of the returned documents of a turn.

        ``nodes`` has facts by id; documents that it lacks are left out. The result is empty without
        regions, or without the query's vector.
        """
        if self._hubs is None or item.vector is None:
            return TypedEdgeContext()
        known = [one.node for one in item.turn.returned if one.node in nodes]
        (query,) = self._hubs.nearest(item.vector[None])
        homes = {node: self._find_home(nodes[node]) for node in known}
        return TypedEdgeContext(self.names[query], homes)

    def _find_home(self, node: NodeFacts) -> str:
        assert self._hubs is not None  # noqa: S101
        return self.names[self._hubs.nearest(node.vector[None])[0]]


class _Replay:
    """Learns typed edges again, from the first feedback to the last."""

    def __init__(
        self,
        settings: LearningSettings,
        exponent: float,
        nodes: Mapping[str, NodeFacts],
        homes: _Homes,
    ) -> None:
        """Start without edges.

        ``exponent`` is the decay exponent after the last feedback; ``nodes`` has the facts of
        documents and hubs by id; ``homes`` finds the regions of queries and documents.
        """
        self._settings, self._exponent = settings, exponent
        self._nodes, self._homes = nodes, homes
        # By source: weight by target and kind.
        self._weights: defaultdict[str, dict[tuple[str, str], StoredWeight]]
        self._weights = defaultdict(dict)
        self._used: dict[int, tuple[float, list[str]]] = {}  # by turn number: time, documents

    def run(self, turns: Sequence[LearnedTurn], stored: Sequence[StoredTypedEdge]) -> None:
        """Learn from turns, in order; each stored weight replaces what was learned before it."""
        added = {item.sequence: item.exponent for item in turns}
        exponent = self._exponent - sum(added.values())
        waiting = sorted(stored, key=lambda edge: -edge.sequence)
        for sequence, group in groupby(turns, key=lambda item: item.sequence):
            while waiting and waiting[-1].sequence < sequence:
                self._apply_stored(waiting.pop())
            exponent += added[sequence]
            self._learn(list(group), exponent)
        for edge in reversed(waiting):
            self._apply_stored(edge)

    def get_weights(self) -> dict[tuple[int, int, EdgeKind], float]:
        """Return effective weights now, by keys of both ends and kind, between known nodes."""
        now = self._read_weights(self._weights, self._exponent)
        return {
            (self._nodes[source].key, self._nodes[target].key, _KINDS[label]): weight
            for (source, target, label), weight in now.items()
            if source in self._nodes and target in self._nodes
        }

    def _apply_stored(self, known: StoredTypedEdge) -> None:
        source, target, label = known.edge
        self._weights[source][target, label] = known.stored

    def _read_weights(self, sources: Iterable[str], exponent: float) -> dict[EdgeId, float]:
        return {
            (source, target, label): stored.decay_to(exponent)
            for source in sources
            for (target, label), stored in self._weights.get(source, {}).items()
        }

    def _get_authority(self, node: str) -> int:
        return self._nodes[node].authority if node in self._nodes else 0

    def _learn(self, items: Sequence[LearnedTurn], exponent: float) -> None:
        """Learn from the turns of one feedback; ``exponent`` is the decay after it."""
        clocks = [item.turn.clock for item in items]
        shares = share_by_recency(clocks, self._settings.turn_decay)
        trust = self._settings.sources.get(
            items[0].feedback.source, _DEFAULT_TRUST[items[0].feedback.source]
        )
        weights = [trust * share for share in shares]
        totals: defaultdict[str, float] = defaultdict(float)
        for item, weight in zip(items, weights, strict=True):
            for one in item.turn.returned:
                totals[one.node] += weight
        for item, weight in zip(items, weights, strict=True):
            credit, fair = self._restore_credit(item, weight, totals)
            context = self._homes.locate(item, self._nodes)
            before = self._find_used_before(item.turn) if any(credit.documents.values()) else []
            situation = TypedEdgeContext(context.query_hub, context.document_hubs, before)
            sources = {*_list_nodes(item.turn), *before, context.query_hub or ""}
            existing = self._read_weights(sources, exponent)
            rate = self._settings.typed_rate
            for source, target, label, delta in learn_typed_edges(
                item.turn, credit, fair, situation, existing, rate
            ):
                edge = (source, str(target), label)
                existing[edge] = max(-1.0, min(1.0, existing.get(edge, 0.0) + delta))
                self._weights[source][edge[1:]] = StoredWeight(
                    existing[edge], exponent, authority=self._get_authority(edge[1])
                )
            wins = {node: value for node, value in credit.documents.items() if value > 0}
            used = sorted(wins, key=lambda node: -wins[node])
            self._used[item.turn.clock] = (item.turn.created, used)

    def _restore_credit(
        self, item: LearnedTurn, weight: float, totals: Mapping[str, float]
    ) -> tuple[Credit, Credit]:
        """Restore the credit of a turn from its stored counts.

        ``weight`` is that of the feedback for the turn, ``totals`` its sum over all turns, by
        document.

        Returns:
            The credit; and the credit with the blame shared out.
        """
        shares: dict[str, float] = {}
        fair: dict[str, float] = {}
        for one in item.turn.returned:
            key = self._nodes[one.node].key if one.node in self._nodes else 0
            wins, passes, decay = item.usage.get(key, (0.0, 0.0, 0.0))
            total = totals[one.node]
            if not (wins or passes or decay) or not total:
                continue
            blame = -decay / (_FULL_BLAME * total)
            is_followed = bool(decay) or item.is_stated_used(one.node)
            followed = item.feedback.outcome if item.feedback.outcome < 0 and is_followed else 0.0
            shares[one.node] = wins / total if wins else followed
            fair[one.node] = wins / total if wins else blame
        return Credit(item.feedback.outcome, weight, shares), Credit(
            item.feedback.outcome, weight, fair
        )

    def _find_used_before(self, turn: Turn) -> list[str]:
        """Return the ids of documents used in the latest earlier turn with feedback, best first.

        Empty if that turn is more than 10 turns or ``window_seconds`` ago, or used none.
        """
        for clock in range(turn.clock - 1, turn.clock - 1 - _MOST_TURNS_AGO, -1):
            if clock in self._used:
                created, used = self._used[clock]
                is_recent = created >= turn.created - self._settings.window_seconds
                return used if is_recent else []
        return []


def _list_nodes(turn: Turn) -> set[str]:
    """Return every node at which a typed edge of a turn can begin or end."""
    path = {
        node for item in turn.returned for edge in item.path for node in (edge.source, edge.target)
    }
    return path | {item.node for item in turn.returned} | {seed.node for seed in turn.seeds}
