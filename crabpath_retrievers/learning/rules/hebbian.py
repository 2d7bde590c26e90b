"""Hebbian co-use (Hebb 1949): documents that an answer uses together get edges to each other.

Co-use inferred from outcomes alone, where the host does not state which documents it used.

A turn that succeeds contained all documents that its task needs. A document that it lacked was not
needed, and the longer two documents occur only together in successes, the more likely the task
needs both: the version space of a conjunction (Mitchell 1997, §2.5), softened by the calibrated
relevance.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes.learned import (
    COUNT_TOLERANCE,
    EdgeId,
    EdgeUpdate,
    LearnedDelta,
)
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import EdgeKind, Turn
from crabpath_retrievers.learning.rules.episode_credit import calibrate_relevance

_MAX_DOCUMENTS = 8  # 28 pairs a turn, so that a frequent document does not become a hub at once
_CO_USED = EdgeKind.CO_USED.label


def update_co_use(
    credit: Credit,
    existing: Mapping[EdgeId, float],
    protos: Mapping[EdgeId, float],
    settings: LearningSettings,
    *,
    habitual: float,
    share: float = 1.0,
) -> EdgeUpdate:
    """Strengthen edges between documents used together, or count towards new edges.

    The Hebbian rule of [CrabPath] (docs/bibliography.md), but a failure strengthens nothing unless
    it states what would have been relevant: an edge moves by ``h (1 - w)``. A pair without an edge
    is counted; at ``promotion_threshold`` counts, of which one turn adds at most one, it gets an
    edge. The edge starts one Hebbian step above the habitual threshold,
    ``threshold + h (1 - threshold)``: a walk considers it at once, and it decays below the
    threshold if it is not used again.

    Args:
        credit: Credit of the turn; its weight scales steps and counts.
        existing: Weights of the edges that the namespace has learned, by edge id; edges of other
            namespaces do not count.
        protos: Counts by edge ``(a, b, co_used)`` with a < b.
        settings: h and the promotion threshold.
        habitual: Weight from which a walk considers an edge (``TierSettings.habitual``).
        share: Share of a count that one turn adds, in (0, 1]; below 1 if use is only inferred.
    """
    if not credit.used or not credit.weight:
        return EdgeUpdate()
    # At most 8 documents, the best credited.
    best = sorted(credit.used, key=lambda node: -credit.documents[node])[:_MAX_DOCUMENTS]
    existing_edges, counts, new = [], {}, []
    count = share * credit.weight
    for a, b in combinations(sorted(best), 2):
        directions = ((a, b, _CO_USED), (b, a, _CO_USED))
        missing = [edge for edge in directions if edge not in existing]
        existing_edges += [edge for edge in directions if edge in existing]
        if missing:
            counts[directions[0]] = count
            if protos.get(directions[0], 0.0) + count >= settings.promotion_threshold - (
                COUNT_TOLERANCE
            ):
                new += missing
    rate = settings.hebbian_rate
    first = habitual + rate * (1 - habitual)
    strengthened = [
        LearnedDelta(*edge, rate * credit.weight * (1 - existing[edge])) for edge in existing_edges
    ]
    created = [LearnedDelta(*edge, first) for edge in new]
    return EdgeUpdate((*strengthened, *created), counts)


_MIN_PROBABILITY = 0.5
_INFERRED_SHARE = 0.5  # of a count: joint use is inferred, the host did not state it
_WEAKENING = 0.6  # share of its weight that an edge loses when one end succeeds without the other


def infer_co_use(
    turn: Turn,
    credit: Credit,
    existing: Mapping[EdgeId, float],
    protos: Mapping[EdgeId, float],
    settings: LearningSettings,
    *,
    habitual: float,
) -> EdgeUpdate:
    """Infer co-use after a success without stated use; no change after a failure.

    Documents with a calibrated relevance of at least 0.5 count as used, for half a count towards a
    new edge. An edge from a returned document to one that was not returned is weakened, and so is a
    count.

    Args:
        turn: The turn with its returned documents and their probabilities.
        credit: Its credit.
        existing: Weights of the edges that the namespace has learned, by edge id.
        protos: Counts by edge ``(a, b, co_used)`` with a < b.
        settings: h and the promotion threshold.
        habitual: Weight from which a walk considers an edge.
    """
    if credit.outcome <= 0 or credit.documents:
        return EdgeUpdate()
    credit_by_node = {
        node: credit.outcome
        for node, p in calibrate_relevance(turn).items()
        if p >= _MIN_PROBABILITY
    }
    used = replace(credit, documents=credit_by_node)
    update = update_co_use(
        used, existing, protos, settings, habitual=habitual, share=_INFERRED_SHARE
    )
    return EdgeUpdate(
        (*update.deltas, *_weaken_edges(turn, credit, existing)),
        {**update.count_changes, **_reduce_counts(turn, credit, protos)},
    )


def _reduce_counts(
    turn: Turn, credit: Credit, protos: Mapping[EdgeId, float]
) -> dict[EdgeId, float]:
    """Return the reductions of counts of pairs of which a success returned only one document."""
    probability = {item.node: item.probability for item in turn.returned}
    step = _INFERRED_SHARE * credit.outcome * credit.weight
    return {
        (a, b, kind): -min(count, step * probability[a if a in probability else b])
        for (a, b, kind), count in protos.items()
        if kind == _CO_USED and count > 0 and (a in probability) != (b in probability)
    }


def _weaken_edges(
    turn: Turn, credit: Credit, existing: Mapping[EdgeId, float]
) -> Iterator[LearnedDelta]:
    """Yield the reductions of edges of which a success returned only the source.

    Scaled by the probability of the source, and by the share of its other partners that were
    returned: if few of them were, the turn was about something else.
    """
    probability = {item.node: item.probability for item in turn.returned}
    partners: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (a, b, kind), weight in existing.items():
        if kind == _CO_USED and weight > 0 and a in probability:
            partners[a][b] = weight
    step = _WEAKENING * credit.outcome * credit.weight
    for a, weights in partners.items():
        present = sum(w for b, w in weights.items() if b in probability) / sum(weights.values())
        for b, weight in weights.items():
            if b not in probability:
                yield LearnedDelta(a, b, _CO_USED, -step * probability[a] * present * weight)
