"""Co-use inferred from outcomes alone, where the host does not state which documents it used.

A turn that succeeds contained all documents that its task needs. A document that it lacked was not
needed, and the longer two documents occur only together in successes, the more likely the task
needs both: the version space of a conjunction (Mitchell 1997, §2.5), softened by the calibrated
relevance.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.believed import calibrate_relevance
from crabpath_retrievers.learning.delta import EdgeId, LearnedDelta, NodePair
from crabpath_retrievers.learning.hebbian import CoUseUpdate, update_co_use
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

_CO_USED = EdgeKind.CO_USED.label
_MIN_PROBABILITY = 0.5
_INFERRED_SHARE = 0.5  # of a count: joint use is inferred, the host did not state it
_WEAKENING = 0.6  # share of its weight that an edge loses when one end succeeds without the other


def infer_co_use(
    turn: Turn,
    credit: Credit,
    existing: Mapping[EdgeId, float],
    protos: Mapping[NodePair, float],
    settings: LearningSettings,
    *,
    habitual: float,
) -> CoUseUpdate:
    """Infer co-use after a success without stated use; no change after a failure.

    Documents with a calibrated relevance of at least 0.5 count as used, for half a count towards a
    new edge. An edge from a returned document to one that was not returned is weakened, and so is a
    count.

    Args:
        turn: The turn with its returned documents and their probabilities.
        credit: Its credit.
        existing: Weights of the edges that the namespace has learned, by edge id.
        protos: Counts by ``(a, b)`` with a < b.
        settings: h and the promotion threshold.
        habitual: Weight from which a walk considers an edge.
    """
    if credit.outcome <= 0 or credit.documents:
        return CoUseUpdate()
    credit_by_node = {
        node: credit.outcome
        for node, p in calibrate_relevance(turn).items()
        if p >= _MIN_PROBABILITY
    }
    used = replace(credit, documents=credit_by_node)
    update = update_co_use(
        used, existing, protos, settings, habitual=habitual, share=_INFERRED_SHARE
    )
    return replace(
        update,
        deltas=(*update.deltas, *_weaken_edges(turn, credit, existing)),
        count_changes={**update.count_changes, **_reduce_counts(turn, credit, protos)},
    )


def _reduce_counts(
    turn: Turn, credit: Credit, protos: Mapping[NodePair, float]
) -> dict[NodePair, float]:
    """Return the reductions of counts of pairs of which a success returned only one document."""
    probability = {item.node: item.probability for item in turn.returned}
    step = _INFERRED_SHARE * credit.outcome * credit.weight
    return {
        (a, b): -min(count, step * probability[a if a in probability else b])
        for (a, b), count in protos.items()
        if count > 0 and (a in probability) != (b in probability)
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
