"""What is known around one turn: learned edges by id, records of blamed documents, regions."""

from collections.abc import Mapping, Sequence

import numpy as np

from crabpath_retrievers.core.changes import WeightDelta
from crabpath_retrievers.core.changes.history import RegionKey
from crabpath_retrievers.core.changes.learned import EdgeId, LearnedDelta, NodePair
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind, Vector
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.rules.failure_credit import DocumentRecord
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import EdgeTriple, KnownNode, LearnedEdges
from crabpath_retrievers.storage.read.walk import Clock

TASK_TYPES_FIELD = "task_type"
"""Metadata field with the types of task a document is meant for: a text or a list of texts."""

_KINDS = {kind.label: kind for kind in EdgeKind}
_STOP = 0  # key of STOP as a target


class TurnEdges:
    """Learned edges between the nodes of one turn by id, and changes of them by store key.

    Attributes:
        weights: Weights of the edges that the namespace has learned.
        co_use_counts: Number of turns that used two of them together, by ``(a, b)`` with a < b.
        inhibition_counts: Number of turns in which one led to another that was blamed.
    """

    def __init__(self, turn: Turn, nodes: Mapping[str, KnownNode], learned: LearnedEdges) -> None:
        """Restrict what was learned to the nodes of a turn that still exist, by id."""
        self._keys = {node: nodes[node].key for node in list_nodes(turn) if node in nodes}
        ids = {key: node for node, key in self._keys.items()}
        self.weights: dict[EdgeId, float] = {
            (ids[a], ids[b], kind.label): weight
            for (a, b, kind), weight in learned.weights.items()
            if a in ids and b in ids
        }
        counts: dict[EdgeKind, dict[NodePair, float]] = {
            EdgeKind.CO_USED: {},
            EdgeKind.INHIBITS: {},
        }
        for (a, b, kind), count in learned.counts.items():
            if a in ids and b in ids and kind in counts:
                counts[kind][ids[a], ids[b]] = count
        self.co_use_counts, self.inhibition_counts = counts.values()

    def get_key(self, node: str) -> int | None:
        """Return the key of a node of the turn; None if it no longer exists."""
        return self._keys.get(node)

    def map_deltas(self, deltas: Sequence[LearnedDelta]) -> list[WeightDelta]:
        """Return changes by store keys; changes at nodes that no longer exist are dropped."""
        mapped = []
        for source, target, kind, delta in deltas:
            ends = self._keys.get(source), _STOP if target is None else self._keys.get(target)
            if ends[0] is not None and ends[1] is not None:
                mapped.append(WeightDelta(ends[0], ends[1], _KINDS[kind], delta))
        return mapped

    def map_pairs(self, pairs: Mapping[NodePair, float], kind: EdgeKind) -> dict[EdgeTriple, float]:
        """Return counts of pairs by store keys and kind."""
        return {
            (self._keys[a], self._keys[b], kind): count
            for (a, b), count in pairs.items()
            if a in self._keys and b in self._keys
        }


def list_nodes(turn: Turn) -> set[str]:
    """Return every node of which a weight or a count may change."""
    return (
        {returned.node for returned in turn.returned}
        | {seed.node for seed in turn.seeds}
        | {step.node for step in turn.steps}
        | {candidate.target for step in turn.steps for candidate in step.candidates}
    )


def read_records(
    store: GraphStore, namespace: int, turn: Turn, credit: Credit, nodes: Mapping[str, KnownNode]
) -> dict[str, DocumentRecord]:
    """Return uses and task types of the documents that a failed turn blames, by id."""
    blamed = [node for node, value in credit.documents.items() if value < 0]
    if not blamed or credit.outcome >= 0:
        return {}
    documents = store.catalog.documents(blamed, namespace=namespace) if turn.task_type else {}
    tasks = {
        node: _to_texts(document.metadata.get(TASK_TYPES_FIELD))
        for node, document in documents.items()
    }
    return {
        node: DocumentRecord(nodes[node].wins if node in nodes else 0.0, tasks.get(node, _NO_TASK))
        for node in blamed
    }


_NO_TASK = frozenset[str]()


def _to_texts(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(map(str, value)) if isinstance(value, (list, tuple)) else _NO_TASK


def locate_turn(
    regions: Regions,
    clock: Clock,
    vector: Vector,
    documents: Sequence[KnownNode],
) -> tuple[Sequence[RegionKey], dict[str, dict[int, int]]]:
    """Find the regions of a turn.

    Args:
        regions: Regions of the corpus.
        clock: Clock of the namespace, with the version of the hubs.
        vector: Unit query vector, shape ``[d]``.
        documents: The returned documents.

    Returns:
        Regions of the query, from the whole corpus to the finest; regions of the documents, by id
        and level.
    """
    places = regions.places(np.asarray(vector, dtype=np.float32), clock.hubs)
    seen = [(node.id, node.key, node.vector) for node in documents if node.vector is not None]
    keys, vectors = [key for _, key, _ in seen], [vector for *_, vector in seen]
    found: dict[str, dict[int, int]] = {node: {} for node, *_ in seen}
    for level, _ in places:
        of_level = regions.of_nodes(keys, vectors, level, clock.hubs) if level else {}
        for node, key, _ in seen:
            if key in of_level:
                found[node][level] = of_level[key]
    return places, found
