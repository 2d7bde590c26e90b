"""Repeated blame: where a query enters and a document misleads, again and again, advise against it.

The bounded form of the inhibition of documents 000 §2 and 003 §2 (design, P6): it lowers a
document in the ranking, it never takes it out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import ROUNDING, EdgeName, LearnedDelta, Pair
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Returned, Turn

DEEPEST = -0.6
"""Lowest weight of an inhibitory edge."""

_STEP = 0.5  # share of the way to -0.6 or back to 0, per turn
_KIND = EdgeKind.INHIBITS.label


@dataclass(frozen=True, slots=True)
class Blame:
    """What blame, or its opposite, changes after one turn.

    Attributes:
        deltas: Changes of edges of kind ``inhibits``, from an entry node to a document.
        counted: To add to the blame count of ``(entry, document)``, in [-1, 1]; a count is
            never below 0.
        promoted: Pairs that get an inhibitory edge now; its first weight is among the deltas.
    """

    deltas: tuple[LearnedDelta, ...] = ()
    counted: Mapping[Pair, float] = field(default_factory=dict)
    promoted: tuple[Pair, ...] = ()


def blame(
    turn: Turn,
    credit: Credit,
    existing: Mapping[EdgeName, float],
    counts: Mapping[Pair, float],
    settings: LearningSettings,
) -> Blame:
    """Count blamed documents against their entry, and inhibit them once it happens repeatedly.

    Only documents whose own credit is known: a failed answer does not say which of its documents
    misled. Each blame moves an inhibitory edge half of the way to -0.6, in proportion to credit
    and weight. A success of the document by the same entry takes back a blame, or moves the edge
    half of the way to 0.

    Args:
        turn: How each document was reached.
        credit: What became of it.
        existing: Weights of the edges that this namespace has learned, by name.
        counts: Blame so far, by ``(entry, document)``.
        settings: ``blame_threshold``, in counts, of which one turn gives at most one.
    """
    judged = dict(_judged(turn, credit))
    counted = {
        pair: credit.weight if value < 0 else -min(counts.get(pair, 0.0), credit.weight)
        for pair, value in judged.items()
    }
    promoted = tuple(
        pair
        for pair, count in counted.items()
        if count > 0
        and (*pair, _KIND) not in existing
        and counts.get(pair, 0.0) + count >= settings.inhibition_threshold - ROUNDING
    )
    deltas = [
        LearnedDelta(*pair, _KIND, towards(existing.get((*pair, _KIND), 0.0), value))
        for pair, value in judged.items()
        if (*pair, _KIND) in existing or pair in promoted
    ]
    return Blame(
        tuple(delta for delta in deltas if delta.delta),
        {pair: count for pair, count in counted.items() if count},
        promoted,
    )


def _judged(turn: Turn, credit: Credit) -> Iterator[tuple[Pair, float]]:
    """Blamed and successful documents, by the entry that led to them, with credit times weight."""
    for item in turn.returned:
        value = credit.documents.get(item.node, 0.0) * credit.weight
        entry = entry_of(turn, item)
        if entry == item.node:
            # It stood where the query enters: what stands beside it advises against it.
            entry = _beside(turn, item.node)
        if value and entry:
            yield (entry, item.node), value


def _beside(turn: Turn, node: str) -> str | None:
    """The best entry other than this one; None where there is no other."""
    others = (seed for seed in turn.seeds if seed.node != node)
    best = max(others, key=lambda seed: seed.score, default=None)
    return best.node if best else None


def entry_of(turn: Turn, item: Returned) -> str | None:
    """The node by which a query entered and came to a document; None in a turn without seeds.

    Search found what has no route; it stands beside the best entry.
    """
    if item.path:
        return item.path[0].source
    best = max(turn.seeds, key=lambda seed: seed.score, default=None)
    return best.node if best else None


def towards(weight: float, strength: float) -> float:
    """Change of an inhibitory weight, half of the way in proportion to strength in [-1, 1].

    Towards -0.6 for a strength below 0, towards 0 above; never past either.
    """
    if strength < 0:
        return min(0.0, _STEP * -strength * (DEEPEST - weight))
    return max(0.0, _STEP * strength * -weight)
