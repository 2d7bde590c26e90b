"""What a namespace already knows of the nodes of one turn, by the ids that records use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crabpath_retrievers.changes import WeightDelta
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import EdgeName, LearnedDelta, Pair
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Triple
from crabpath_retrievers.trajectory import Turn

_KINDS = {kind.label: kind for kind in EdgeKind}
_STOP = 0  # the target of a weight that is the weight of STOP


@dataclass(frozen=True, slots=True)
class Lessons:
    """Reads and writes ids where the store has keys.

    Attributes:
        keys: Of the nodes that still exist, by id.
        weights: Of the edges that the namespace has made between them.
        protos: Turns in which two of them were used together, by ``(a, b)`` with a < b.
        blamed: Turns in which one led to another that was blamed.
        counts: Both, by key.
    """

    keys: Mapping[str, int]
    weights: Mapping[EdgeName, float]
    protos: Mapping[Pair, float]
    blamed: Mapping[Pair, float]
    counts: Mapping[Triple, float]

    @classmethod
    def of(cls, store: GraphStore, namespace: str, turn: Turn, credit: Credit) -> "Lessons":
        """Read what concerns one judged turn."""
        keys = store.learned.keys(sorted(_concerned(turn)))
        if not credit.documents:
            return cls(keys, {}, {}, {}, {})
        ids = {key: node for node, key in keys.items()}
        sources = list(ids)
        weights = {
            (ids[source], ids[target], kind.label): weight
            for (source, target, kind), weight in store.learned.weights(namespace, sources).items()
            if target in ids
        }
        counts = store.learned.counts(namespace, sources)
        protos, blamed = (
            {
                (ids[source], ids[target]): count
                for (source, target, kind), count in counts.items()
                if kind is wanted and target in ids
            }
            for wanted in (EdgeKind.CO_USED, EdgeKind.INHIBITS)
        )
        return cls(keys, weights, protos, blamed, counts)

    def known(self, deltas: Iterable[LearnedDelta]) -> tuple[WeightDelta, ...]:
        """Those deltas whose nodes still exist."""
        return tuple(
            WeightDelta(
                self.keys[delta.source],
                _STOP if delta.target is None else self.keys[delta.target],
                _KINDS[delta.kind],
                delta.delta,
            )
            for delta in deltas
            if delta.source in self.keys and (delta.target is None or delta.target in self.keys)
        )

    def counted(
        self, together: Mapping[Pair, float], against: Mapping[Pair, float]
    ) -> tuple[tuple[int, int, EdgeKind, float], ...]:
        """Counts of joint use and of blame, for the store."""
        return tuple(
            (self.keys[a], self.keys[b], kind, count)
            for counts, kind in ((together, EdgeKind.CO_USED), (against, EdgeKind.INHIBITS))
            for (a, b), count in counts.items()
            if a in self.keys and b in self.keys
        )

    def use(self, credit: Credit) -> tuple[tuple[int, float, float], ...]:
        """Uses and passes of documents, for the store; what was only inferred is no pass."""
        return tuple(
            (self.keys[node], credit.weight * max(0.0, c), credit.weight * float(c <= 0))
            for node, c in credit.documents.items()
            if node in self.keys and (c or node not in credit.inferred)
        )


def _concerned(turn: Turn) -> set[str]:
    """Every node of which a weight or a count may change."""
    return (
        {returned.node for returned in turn.returned}
        | {seed.node for seed in turn.seeds}
        | {step.node for step in turn.steps}
        | {candidate.target for step in turn.steps for candidate in step.candidates}
    )
