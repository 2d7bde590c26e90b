"""Learned edges and counts between the nodes of one turn, by the ids that turn records use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crabpath_retrievers.changes import WeightDelta
from crabpath_retrievers.feedback.names import map_deltas_to_keys, map_weights_to_ids
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import EdgeId, LearnedDelta, NodePair
from crabpath_retrievers.learning.typed import TypedEdgeContext
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import EdgeTriple
from crabpath_retrievers.trajectory import Turn


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
        situation: TypedEdgeContext | None = None,
    ) -> "LearnedEdges":
        """Read the learned state around one credited turn and its typed-edge context."""
        context = situation or TypedEdgeContext()
        context_nodes = {
            *context.used_before,
            *context.document_hubs.values(),
            *([context.query_hub] if context.query_hub else []),
        }
        keys = store.learned.keys(sorted(_list_nodes(turn) | context_nodes))
        ids = {key: node for node, key in keys.items()}
        is_informative = credit.documents or credit.outcome > 0
        # A failure without stated use moves decided edges and region transitions only.
        sources = (
            list(ids) if is_informative else [k for n, k in keys.items() if n == context.query_hub]
        )
        if not sources:
            return cls(keys, {}, {}, {}, {})
        weights = map_weights_to_ids(store.learned.weights(namespace, sources), keys)
        counts = store.learned.counts(namespace, sources) if is_informative else {}
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
