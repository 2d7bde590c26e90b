"""Co-use where only outcomes are told: what succeeds together, and what a success did without.

A turn that succeeds has read all that its task needs. So what it lacked was not needed, and the
longer two documents are never apart in a success, the likelier the task needs both: the version
space of a conjunction (Mitchell 1997, §2.5), made soft by what the ranker believes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.believed import believed
from crabpath_retrievers.learning.delta import EdgeName, LearnedDelta, Pair
from crabpath_retrievers.learning.hebbian import CoUse, co_use
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

_CO_USED = EdgeKind.CO_USED.label
_MIN_PROBABILITY = 0.5
_INFERRED_SHARE = 0.5  # of a count: joint use is inferred, the host did not state it
_WEAKENING = 0.6  # share of its weight that an edge loses when one end succeeds without the other


def succeeded_together(
    turn: Turn,
    credit: Credit,
    existing: Mapping[EdgeName, float],
    protos: Mapping[Pair, float],
    settings: LearningSettings,
    *,
    habitual: float,
) -> CoUse:
    """Co-use after a success of which nobody said what it used; nothing after a failure.

    The documents that mattered more likely than not count as used, for half towards a new edge.
    An edge from a returned document to one that was not returned falls, and so does a count.

    Args:
        turn: What was returned, with the ranker's probabilities.
        credit: What became of it.
        existing: Weights of the edges that this namespace has learned, by name.
        protos: Counts by ``(a, b)`` with a < b.
        settings: h and the threshold.
        habitual: Weight from which a walk considers an edge.
    """
    if credit.outcome <= 0 or credit.documents:
        return CoUse()
    credit_by_node = {
        node: credit.outcome for node, p in believed(turn).items() if p >= _MIN_PROBABILITY
    }
    used = replace(credit, documents=credit_by_node)
    update = co_use(used, existing, protos, settings, habitual=habitual, share=_INFERRED_SHARE)
    return replace(
        update,
        deltas=(*update.deltas, *_weaken_edges(turn, credit, existing)),
        counted={**update.counted, **_reduce_counts(turn, credit, protos)},
    )


def _reduce_counts(turn: Turn, credit: Credit, protos: Mapping[Pair, float]) -> dict[Pair, float]:
    """What is taken from counts of pairs of which a success had one end only."""
    probability = {item.node: item.probability for item in turn.returned}
    step = _INFERRED_SHARE * credit.outcome * credit.weight
    return {
        (a, b): -min(count, step * probability[a if a in probability else b])
        for (a, b), count in protos.items()
        if count > 0 and (a in probability) != (b in probability)
    }


def _weaken_edges(
    turn: Turn, credit: Credit, existing: Mapping[EdgeName, float]
) -> Iterator[LearnedDelta]:
    """Falls of edges that a success did without.

    As far as the ranker believed in the source, and as far as the rest of what it goes with was
    there: where little of it was, the turn was about something else.
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
