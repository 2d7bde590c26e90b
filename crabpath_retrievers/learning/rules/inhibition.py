"""Inhibitory edges: advice against a document that misled repeatedly after the same entry node.

A bounded form of the inhibition of [CrabPath] (docs/bibliography.md): it lowers a document in the
ranking and never removes it.
"""

from collections.abc import Iterator, Mapping

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes.learned import (
    COUNT_TOLERANCE,
    EdgeId,
    EdgeUpdate,
    LearnedDelta,
    NodePair,
)
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.turn import ReturnedDocument, Turn

MIN_INHIBITION = -0.6
"""Lowest weight of an inhibitory edge."""

_INHIBITION_RATE = 0.5  # share of the way to -0.6, or to 0, per turn
_INHIBITS = EdgeKind.INHIBITS.label


def update_inhibition(
    turn: Turn,
    credit: Credit,
    existing: Mapping[EdgeId, float],
    counts: Mapping[NodePair, float],
    settings: LearningSettings,
) -> EdgeUpdate:
    """Count blame against documents by their entry node, and inhibit those blamed repeatedly.

    Only documents with credit of their own count: a failed answer alone does not say which of its
    documents misled. Each blame moves an existing inhibitory edge half of the way to -0.6, scaled
    by credit and weight. A success of the document after the same entry reduces the count, or moves
    the edge half of the way to 0.

    Args:
        turn: The turn with the paths of its documents.
        credit: Its credit.
        existing: Weights of the edges that the namespace has learned, by edge id.
        counts: Blame counts so far, by ``(entry, document)``.
        settings: ``blame_threshold``, in counts; one turn adds at most one.
    """
    credited = dict(_list_credited(turn, credit))
    counted = {
        pair: credit.weight if value < 0 else -min(counts.get(pair, 0.0), credit.weight)
        for pair, value in credited.items()
    }
    promoted = tuple(
        pair
        for pair, count in counted.items()
        if count > 0
        and (*pair, _INHIBITS) not in existing
        and counts.get(pair, 0.0) + count >= settings.inhibition_threshold - COUNT_TOLERANCE
    )
    deltas = [
        LearnedDelta(
            *pair, _INHIBITS, compute_inhibition_step(existing.get((*pair, _INHIBITS), 0.0), value)
        )
        for pair, value in credited.items()
        if (*pair, _INHIBITS) in existing or pair in promoted
    ]
    return EdgeUpdate(
        tuple(delta for delta in deltas if delta.delta),
        {pair: count for pair, count in counted.items() if count},
    )


def _list_credited(turn: Turn, credit: Credit) -> Iterator[tuple[NodePair, float]]:
    """Yield blamed and successful documents with their entry node, and credit times weight."""
    for item in turn.returned:
        value = credit.documents.get(item.node, 0.0) * credit.weight
        entry = find_entry(turn, item)
        if entry == item.node:
            # The document is itself an entry: the best other entry gets the edge.
            entry = _find_other_entry(turn, item.node)
        if value and entry:
            yield (entry, item.node), value


def _find_other_entry(turn: Turn, node: str) -> str | None:
    """Return the best entry other than ``node``; None if there is no other."""
    others = (seed for seed in turn.seeds if seed.node != node)
    best = max(others, key=lambda seed: seed.score, default=None)
    return best.node if best else None


def find_entry(turn: Turn, item: ReturnedDocument) -> str | None:
    """Return the node at which the query entered on the way to a document.

    A document without a path was found by search and counts as reached from the best seed. None if
    the turn has no seeds.
    """
    if item.path:
        return item.path[0].source
    best = max(turn.seeds, key=lambda seed: seed.score, default=None)
    return best.node if best else None


def compute_inhibition_step(weight: float, strength: float) -> float:
    """Compute the change of an inhibitory weight for a strength in [-1, 1].

    Half of the way, scaled by the strength: to -0.6 below 0, to 0 above; never beyond either.
    """
    if strength < 0:
        return min(0.0, _INHIBITION_RATE * -strength * (MIN_INHIBITION - weight))
    return max(0.0, _INHIBITION_RATE * strength * -weight)
