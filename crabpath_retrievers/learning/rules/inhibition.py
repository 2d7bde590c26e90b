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
)
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import EdgeKind, ReturnedDocument, Turn

MIN_INHIBITION = -0.6
"""Lowest weight of an inhibitory edge."""

_INHIBITION_RATE = 0.5  # share of the way to -0.6, or to 0, per turn
_INHIBITS = EdgeKind.INHIBITS.label


def update_inhibition(
    turn: Turn,
    credit: Credit,
    existing: Mapping[EdgeId, float],
    counts: Mapping[EdgeId, float],
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
        counts: Blame counts so far, by edge ``(entry, document, inhibits)``.
        settings: ``inhibition_threshold``, in counts; one turn adds at most one.
    """
    deltas, counted = list[LearnedDelta](), dict[EdgeId, float]()
    for edge, value in _list_credited(turn, credit):
        before = counts.get(edge, 0.0)
        count = credit.weight if value < 0 else -min(before, credit.weight)
        if count:
            counted[edge] = count
        is_promoted = (
            count > 0 and before + count >= settings.inhibition_threshold - COUNT_TOLERANCE
        )
        step = compute_inhibition_step(existing.get(edge, 0.0), value)
        if step and (edge in existing or is_promoted):
            deltas.append(LearnedDelta(*edge, step))
    return EdgeUpdate(tuple(deltas), counted)


def _list_credited(turn: Turn, credit: Credit) -> Iterator[tuple[EdgeId, float]]:
    """Yield edges from entry nodes to blamed and successful documents; credit times weight."""
    for item in turn.returned:
        value = credit.documents.get(item.node, 0.0) * credit.weight
        entry = find_entry(turn, item)
        if entry == item.node:
            # The document is itself an entry: the best other entry gets the edge.
            entry = find_best_seed(turn, other_than=item.node)
        if value and entry:
            yield (entry, item.node, _INHIBITS), value


def find_entry(turn: Turn, item: ReturnedDocument) -> str | None:
    """Return the node at which the query entered on the way to a document.

    A document without a path was found by search and counts as reached from the best seed. None if
    the turn has no seeds.
    """
    return item.path[0].source if item.path else find_best_seed(turn)


def find_best_seed(turn: Turn, other_than: str | None = None) -> str | None:
    """Return the best seed of a turn; None if it has no other."""
    seeds = (seed for seed in turn.seeds if seed.node != other_than)
    best = max(seeds, key=lambda seed: seed.score, default=None)
    return best.node if best else None


def compute_inhibition_step(weight: float, strength: float) -> float:
    """Compute the change of an inhibitory weight for a strength in [-1, 1].

    Half of the way, scaled by the strength: to -0.6 below 0, to 0 above; never beyond either.
    """
    if strength < 0:
        return min(0.0, _INHIBITION_RATE * -strength * (MIN_INHIBITION - weight))
    return max(0.0, _INHIBITION_RATE * strength * -weight)
