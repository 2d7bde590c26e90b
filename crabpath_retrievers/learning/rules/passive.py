"""Passive learning: what a turn teaches without any outcome. Off by default.

The structural layer of [CrabPath] (docs/bibliography.md, §3.3 and §4.2) learns from what is
returned together, right or wrong; its second version lets edges drift down that were on offer and
not followed (§2.6).
"""

from collections.abc import Iterator, Mapping

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes.learned import EdgeId, EdgeUpdate, LearnedDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.learning.rules.hebbian import update_co_use


def update_co_retrieval(
    turn: Turn,
    existing: Mapping[EdgeId, float],
    protos: Mapping[EdgeId, float],
    settings: LearningSettings,
) -> EdgeUpdate:
    """Count the pairs among the first 8 documents that were returned, or strengthen their edges.

    As :func:`update_co_use`, with ``passive_rate`` as h. A new edge starts at h, as in [CrabPath],
    and so asleep: it is walked once it has been strengthened up to ``TierSettings.habitual``.

    Args:
        turn: The turn with its returned documents.
        existing: Weights of the edges that the namespace has learned, by edge id.
        protos: Counts by edge ``(a, b, co_used)`` with a < b.
        settings: h and the promotion threshold.
    """
    if not settings.passive_rate:
        return EdgeUpdate()
    returned = Credit(1.0, documents={item.node: 1.0 for item in turn.returned})
    passive = settings.replace(hebbian_rate=settings.passive_rate)
    return update_co_use(returned, existing, protos, passive, habitual=0.0)


def penalise_skips(turn: Turn, penalty: float) -> Iterator[LearnedDelta]:
    """Yield the reductions of edges that a walk could have followed and did not, to 0 at most.

    Args:
        turn: The turn with the steps of its walk.
        penalty: What each loses, at least 0; η_follow of [CrabPath], which has 0.02.
    """
    for step in turn.steps if penalty else ():
        followed = {*step.chosen, *step.reflexes}
        for edge in step.candidates:
            if edge.probability > 0 and edge.weight > 0 and edge.target not in followed:
                yield LearnedDelta(step.node, edge.target, edge.kind, -min(penalty, edge.weight))
