"""What is read about one turn before learning from it: regions, records, learned edges.

Translation between node ids, as in records, and store keys.

Learned edges and counts between the nodes of one turn, by the ids that turn records use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes import WeightDelta
from crabpath_retrievers.core.changes.history import RegionKey
from crabpath_retrievers.core.changes.learned import EdgeId, LearnedDelta, NodePair
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind, Vector
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.rules.failure_credit import DocumentRecord
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.regions.success import ANY_TASK, SuccessModel
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import EdgeTriple
from crabpath_retrievers.storage.read.walk import Clock

TASK_TYPES_FIELD = "task_type"
"""Metadata field with the types of task a document is meant for: a text or a list of texts."""


@dataclass(frozen=True, slots=True)
class TurnRegions:
    """Regions of a turn.

    Attributes:
        places: Regions of its query, from the whole corpus to the finest; empty if the corpus has
            no regions.
        documents: Regions of the returned documents, by id and level.
        chances: Success estimates in these regions before this turn.
    """

    places: Sequence[RegionKey]
    documents: Mapping[str, Mapping[int, int]]
    chances: SuccessModel

    def quality(self, task: str | None) -> float:
        """P(success) in the region of the query, in (0, 1)."""
        return self.chances.quality(task or ANY_TASK)

    def baseline(self, usual: float) -> float:
        """Mean credit in the region of the query, in [-1, 1]; starts at ``usual``."""
        return self.chances.credit(usual)


@dataclass(frozen=True, slots=True)
class TurnRegionReader:
    """Reads regions and document records for a namespace at ``clock``."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings
    clock: Clock

    def locate(self, turn: Turn, vector: Vector | None) -> TurnRegions:
        """Find the regions of a turn with this unit query vector, shape ``[d]``."""
        clock = self.clock
        if vector is None or not clock.hubs:
            return TurnRegions((), {}, SuccessModel((), (), self.settings.prior_trials))
        places = self.regions.places(np.asarray(vector, dtype=np.float32), clock.hubs)
        steps = self.store.regions.get_transitions(clock.key, places) if clock.key else []
        chances = SuccessModel(places, steps, self.settings.prior_trials)
        levels = [level for level, _ in places if level]
        documents = self._locate_documents(turn, levels, clock)
        return TurnRegions(places, documents, chances)

    def _locate_documents(
        self, turn: Turn, levels: Sequence[int], clock: Clock
    ) -> dict[str, dict[int, int]]:
        nodes = [item.node for item in turn.returned]
        heads = self.store.walk.get_nodes(nodes, namespace=clock.key)
        keys, vectors = [head.key for head in heads], [head.vector for head in heads]
        regions_by_level = {
            lev: self.regions.of_nodes(keys, vectors, lev, clock.hubs) for lev in levels
        }
        return {
            head.id: {
                level: regions[head.key]
                for level, regions in regions_by_level.items()
                if head.key in regions
            }
            for head in heads
        }

    def read_records(self, turn: Turn, credit: Credit) -> dict[str, DocumentRecord]:
        """Read the usage and task types of the documents that a failed turn blames."""
        blamed_ids = [node for node, value in credit.documents.items() if value < 0]
        if not blamed_ids or credit.outcome >= 0:
            return {}
        clock = self.clock
        keys = self.store.learned.keys(blamed_ids)
        usage = self.store.learned.usage(clock.key, list(keys.values()))
        tasks = self._read_task_types(blamed_ids, clock.key) if turn.task_type else {}
        return {
            node: DocumentRecord(
                usage[keys[node]].wins if keys.get(node) in usage else 0.0,
                tasks.get(node, frozenset()),
            )
            for node in blamed_ids
        }

    def _read_task_types(self, nodes: Sequence[str], namespace: int) -> dict[str, frozenset[str]]:
        documents = self.store.catalog.documents(nodes, namespace=namespace)
        return {
            node: _to_texts(document.metadata.get(TASK_TYPES_FIELD))
            for node, document in documents.items()
        }


def _to_texts(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(map(str, value)) if isinstance(value, (list, tuple)) else frozenset()


_KINDS = {kind.label: kind for kind in EdgeKind}
_STOP = 0  # key of STOP as a target


def map_weights_to_ids(
    weights: Mapping[EdgeTriple, float], keys: Mapping[str, int]
) -> dict[EdgeId, float]:
    """Return weights by edge id: ids of both ends and label of the kind.

    Args:
        weights: Weights by keys of both ends and kind.
        keys: Keys of the known nodes, by id; edges at other nodes are dropped.
    """
    ids = {key: node for node, key in keys.items()}
    return {
        (ids[source], ids[target], kind.label): weight
        for (source, target, kind), weight in weights.items()
        if source in ids and target in ids
    }


def map_deltas_to_keys(
    deltas: Iterable[LearnedDelta], keys: Mapping[str, int]
) -> Iterator[WeightDelta]:
    """Yield changes by store keys; changes at unknown nodes are dropped."""
    for delta in deltas:
        target = _STOP if delta.target is None else keys.get(delta.target)
        if delta.source in keys and target is not None:
            yield WeightDelta(keys[delta.source], target, _KINDS[delta.kind], delta.delta)


@dataclass(frozen=True, slots=True)
class LearnedEdges:
    """Learned state around one turn, and the translation of changes from ids to store keys.

    Attributes:
        keys: Key of each node that still exists, by id.
        weights: Weights of the edges that the namespace has learned between them.
        co_use_counts: Number of turns that used two of them together, by ``(a, b)`` with a < b.
        inhibition_counts: Number of turns in which one led to another that was blamed.
        counts: Both counts, by keys and kind.
    """

    keys: Mapping[str, int]
    weights: Mapping[EdgeId, float]
    co_use_counts: Mapping[NodePair, float]
    inhibition_counts: Mapping[NodePair, float]
    counts: Mapping[EdgeTriple, float]

    @classmethod
    def load(
        cls,
        store: GraphStore,
        namespace: str,
        turn: Turn,
        credit: Credit,
    ) -> "LearnedEdges":
        """Read the learned state around one credited turn."""
        keys = store.learned.keys(sorted(_list_nodes(turn)))
        ids = {key: node for node, key in keys.items()}
        is_informative = credit.documents or credit.outcome > 0
        # A failure without stated use moves decided edges only.
        sources = list(ids) if is_informative else []
        if not sources:
            return cls(keys, {}, {}, {}, {})
        weights = map_weights_to_ids(store.learned.weights(namespace, sources), keys)
        counts = store.learned.counts(namespace, sources)
        co_use_counts, inhibition_counts = (
            {
                (ids[source], ids[target]): count
                for (source, target, kind), count in counts.items()
                if kind is wanted and target in ids
            }
            for wanted in (EdgeKind.CO_USED, EdgeKind.INHIBITS)
        )
        return cls(keys, weights, co_use_counts, inhibition_counts, counts)

    def to_weight_deltas(self, deltas: Iterable[LearnedDelta]) -> tuple[WeightDelta, ...]:
        """Return the changes whose nodes still exist, by store keys."""
        return tuple(map_deltas_to_keys(deltas, self.keys))

    def to_pair_counts(
        self, together: Mapping[NodePair, float], against: Mapping[NodePair, float]
    ) -> tuple[tuple[int, int, EdgeKind, float], ...]:
        """Return counts of joint use and of blame, by store keys."""
        return tuple(
            (self.keys[a], self.keys[b], kind, count)
            for counts, kind in ((together, EdgeKind.CO_USED), (against, EdgeKind.INHIBITS))
            for (a, b), count in counts.items()
            if a in self.keys and b in self.keys
        )

    def to_uses(
        self, credit: Credit, decays: Mapping[str, float]
    ) -> tuple[tuple[int, float, float, float], ...]:
        """Return successes, passes and reward decay, by store keys.

        A credit of 0 that was only inferred from an answer is not counted as a pass.
        """
        counted = [
            (self.keys[node], credit.weight * max(0.0, c), credit.weight * float(c <= 0), 0.0)
            for node, c in credit.documents.items()
            if node in self.keys and (c or node not in credit.inferred)
        ]
        taken = [(self.keys[n], 0.0, 0.0, nats) for n, nats in decays.items() if n in self.keys]
        return (*counted, *taken)


def _list_nodes(turn: Turn) -> set[str]:
    """Return every node of which a weight or a count may change."""
    return (
        {returned.node for returned in turn.returned}
        | {seed.node for seed in turn.seeds}
        | {step.node for step in turn.steps}
        | {candidate.target for step in turn.steps for candidate in step.candidates}
    )
