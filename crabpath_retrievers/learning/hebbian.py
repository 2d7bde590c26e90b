"""Hebbian co-use (Hebb 1949): documents that an answer uses together get edges to each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.delta import COUNT_TOLERANCE, EdgeId, LearnedDelta, NodePair
from crabpath_retrievers.outcome import Credit

_MAX_DOCUMENTS = 8  # 28 pairs a turn, so that a frequent document does not become a hub at once
_CO_USED = EdgeKind.CO_USED.label


@dataclass(frozen=True, slots=True)
class CoUseUpdate:
    """Changes of co-use edges and counts after one turn.

    Attributes:
        deltas: Changes of edges of kind ``co_used``, in both directions.
        count_changes: To add to the count of each pair without an edge, by ``(a, b)`` with a < b;
            in (0, 1].
        promoted: Pairs that get edges now; their first weight is among the deltas.
    """

    deltas: tuple[LearnedDelta, ...] = ()
    count_changes: Mapping[NodePair, float] = field(default_factory=dict)
    promoted: tuple[NodePair, ...] = ()


def update_co_use(
    credit: Credit,
    existing: Mapping[EdgeId, float],
    protos: Mapping[NodePair, float],
    settings: LearningSettings,
    *,
    habitual: float,
    share: float = 1.0,
) -> CoUseUpdate:
    """Strengthen edges between documents used together, or count towards new edges.

    The Hebbian rule of [CrabPath] (docs/bibliography.md), but never after a failure: an edge moves
    by ``h (1 - w)``. A pair without an edge is counted; at ``promotion_threshold`` counts, of which
    one turn adds at most one, it gets an edge. The edge starts one Hebbian step above the habitual
    threshold, ``threshold + h (1 - threshold)``: a walk considers it at once, and it decays below
    the threshold if it is not used again.

    Args:
        credit: Credit of the turn; its weight scales steps and counts.
        existing: Weights of the edges that the namespace has learned, by edge id; edges of other
            namespaces do not count.
        protos: Counts by ``(a, b)`` with a < b.
        settings: h and the promotion threshold.
        habitual: Weight from which a walk considers an edge (``TierSettings.habitual``).
        share: Share of a count that one turn adds, in (0, 1]; below 1 if use is only inferred.
    """
    if credit.outcome < 0 or not credit.weight:
        return CoUseUpdate()
    pairs = list(combinations(sorted(_select_best(credit)), 2))
    existing_edges = [edge for pair in pairs for edge in _list_directions(pair) if edge in existing]
    counted = [
        pair for pair in pairs if any(edge not in existing for edge in _list_directions(pair))
    ]
    count = share * credit.weight
    promoted = [
        pair
        for pair in counted
        if protos.get(pair, 0.0) + count >= settings.promotion_threshold - COUNT_TOLERANCE
    ]
    new = [edge for pair in promoted for edge in _list_directions(pair) if edge not in existing]
    rate = settings.hebbian_rate
    first = habitual + rate * (1 - habitual)
    strengthened = [
        LearnedDelta(*edge, rate * credit.weight * (1 - existing[edge])) for edge in existing_edges
    ]
    created = [LearnedDelta(*edge, first) for edge in new]
    return CoUseUpdate((*strengthened, *created), dict.fromkeys(counted, count), tuple(promoted))


def _select_best(credit: Credit) -> Sequence[str]:
    """Return the documents used, at most 8, in the order of their credit."""
    return sorted(credit.used, key=lambda node: -credit.documents[node])[:_MAX_DOCUMENTS]


def _list_directions(pair: NodePair) -> tuple[EdgeId, EdgeId]:
    a, b = pair
    return (a, b, _CO_USED), (b, a, _CO_USED)
