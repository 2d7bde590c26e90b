"""Learning from a turn without any outcome, where settings ask for it."""

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes import LearnPassively, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.turn import Turn
from crabpath_retrievers.learning.rules.passive import penalise_skips, update_co_retrieval
from crabpath_retrievers.storage import Store

_KINDS = {kind.label: kind for kind in EdgeKind}


def learn_from_turn(store: Store, settings: LearningSettings, turn: Turn) -> None:
    """Learn what a recorded turn teaches by itself; a frozen namespace learns nothing.

    Args:
        store: The store with the turn.
        settings: ``passive_rate`` and ``skip_penalty``.
        turn: The turn.

    Raises:
        StoreError: It could not be stored.
    """
    store.flush()  # a new namespace gets its key with its first turn
    clock = store.walk.get_clock(turn.namespace)
    skipped = list(penalise_skips(turn, settings.skip_penalty))
    ends = {end for delta in skipped for end in delta[:2] if end is not None}
    known = store.learned.nodes(clock.key, {*ends, *(item.node for item in turn.returned)})
    keys = {node: one.key for node, one in known.items()}
    ids = {key: node for node, key in keys.items()}
    found = store.learned.edges(turn.namespace, sorted(ids))
    weights, counts = (
        {
            (ids[source], ids[target], kind.label): value
            for (source, target, kind), value in values.items()
            if source in ids and target in ids
        }
        for values in (found.weights, found.counts)
    )
    update = update_co_retrieval(turn, weights, counts, settings)
    deltas = tuple(
        WeightDelta(keys[source], keys[target], _KINDS[kind], delta)
        for source, target, kind, delta in (*update.deltas, *skipped)
        if source in keys and target in keys
    )
    pairs = tuple(
        (keys[a], keys[b], _KINDS[kind], count)
        for (a, b, kind), count in update.count_changes.items()
        if a in keys and b in keys
    )
    if deltas or pairs:
        store.apply([LearnPassively(turn.namespace, deltas, pairs, turn.id)])
