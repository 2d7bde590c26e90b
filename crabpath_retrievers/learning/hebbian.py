"""Hebbian co-use: documents that an answer needs together point at each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import ROUNDING, EdgeName, LearnedDelta, Pair
from crabpath_retrievers.outcome import Credit

_MAX_DOCUMENTS = 8  # 28 pairs a turn: a document that is always there must not become a hub at once
_CO_USED = EdgeKind.CO_USED.label


@dataclass(frozen=True, slots=True)
class CoUse:
    """What joint use in one turn changes.

    Attributes:
        deltas: Changes of edges of kind ``co_used``, in both directions.
        counted: To add to the count of each proto-edge, by ``(a, b)`` with a < b; in (0, 1].
        promoted: Proto-edges that become edges now; their first weight is among the deltas.
    """

    deltas: tuple[LearnedDelta, ...] = ()
    counted: Mapping[Pair, float] = field(default_factory=dict)
    promoted: tuple[Pair, ...] = ()


def co_use(
    credit: Credit,
    existing: Mapping[EdgeName, float],
    protos: Mapping[Pair, float],
    settings: LearningSettings,
    *,
    habitual: float,
    share: float = 1.0,
) -> CoUse:
    """Strengthen edges between documents used together, or count towards them.

    Documents 000 §3.3 and §4.2, but never after a failure (design §8): an edge moves by
    ``h (1 - w)``. A pair without an edge is counted; with ``promotion_threshold`` counts, of which
    one turn gives at most one, it becomes an edge. That edge starts one Hebbian step above the
    habitual bar, ``bar + h (1 - bar)``: a walk sees it at once, and it fades below the bar when
    it is never used again.

    Args:
        credit: What became of the turn; its weight scales steps and counts.
        existing: Weights of the edges that this namespace has learned, by name; what only
            another one has learned is no edge yet.
        protos: Counts by ``(a, b)`` with a < b.
        settings: h and the threshold.
        habitual: Weight from which a walk considers an edge (``TierSettings.habitual``).
        share: Of a count that one turn gives, in (0, 1]; less where it was not said what was used.
    """
    if credit.outcome < 0 or not credit.weight:
        return CoUse()
    pairs = list(combinations(sorted(_select_best(credit)), 2))
    existing_edges = [edge for pair in pairs for edge in _both_directions(pair) if edge in existing]
    counted = [
        pair for pair in pairs if any(edge not in existing for edge in _both_directions(pair))
    ]
    count = share * credit.weight
    promoted = [
        pair
        for pair in counted
        if protos.get(pair, 0.0) + count >= settings.promotion_threshold - ROUNDING
    ]
    new = [edge for pair in promoted for edge in _both_directions(pair) if edge not in existing]
    rate = settings.hebbian_rate
    first = habitual + rate * (1 - habitual)
    strengthened = [
        LearnedDelta(*edge, rate * credit.weight * (1 - existing[edge])) for edge in existing_edges
    ]
    created = [LearnedDelta(*edge, first) for edge in new]
    return CoUse((*strengthened, *created), dict.fromkeys(counted, count), tuple(promoted))


def _select_best(credit: Credit) -> Sequence[str]:
    """The documents used, at most 8, best credited first."""
    return sorted(credit.used, key=lambda node: -credit.documents[node])[:_MAX_DOCUMENTS]


def _both_directions(pair: Pair) -> tuple[EdgeName, EdgeName]:
    a, b = pair
    return (a, b, _CO_USED), (b, a, _CO_USED)
