"""Translation between node ids, as in records, and store keys."""

from collections.abc import Iterable, Iterator, Mapping

from crabpath_retrievers.changes import WeightDelta
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import EdgeId, LearnedDelta
from crabpath_retrievers.storage.learned_queries import EdgeTriple

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
