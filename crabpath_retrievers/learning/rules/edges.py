"""What a turn teaches about ways: edges between documents, and transitions between regions.

Hebbian co-use (Hebb 1949): documents that an answer uses together get edges to each other. Where
the host does not state which documents it used, co-use is inferred from outcomes alone: a turn that
succeeds contained all documents that its task needs. A document that it lacked was not needed, and
the longer two documents occur only together in successes, the more likely the task needs both: the
version space of a conjunction (Mitchell 1997, §2.5), softened by the calibrated relevance.

Inhibitory edges advise against a document that misled repeatedly after the same entry node: a
bounded form of the inhibition of [CrabPath] (docs/bibliography.md). It lowers a document in the
ranking and never removes it.

Passive learning is what a turn teaches without any outcome; it is off by default. The structural
layer of [CrabPath] (§3.3 and §4.2) learns from what is returned together, right or wrong; its
second version lets edges drift down that were on offer and not followed (§2.6).

Transitions count actions in regions, for the region MDP of [CVX RFC-013] (docs/bibliography.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from operator import attrgetter
from types import MappingProxyType

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes import (
    COUNT_TOLERANCE,
    EdgeId,
    EdgeUpdate,
    LearnedDelta,
    RegionKey,
    TransitionCount,
)
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import SEARCH_ACTION, EdgeKind, ReturnedDocument, Turn
from crabpath_retrievers.learning.rules.credit import calibrate_relevance

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
        existing: Weights of the edges that the namespace has learned, by edge id; edges of other
            namespaces do not count.
        protos: Counts by edge ``(a, b, co_used)`` with a < b.
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
    """Infer co-use after a success without stated use; after a failure, nothing changes.

    Documents with a calibrated relevance of at least 0.5 count as used, for half a count towards a
    new edge. An edge from a returned document to one that was not returned is weakened, and so is
    the count of such a pair. Arguments are as for :func:`update_co_use`.
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
    """Return the reductions of counts of pairs of which a success returned only one document.

    ``protos`` are the counts by edge id.
    """
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

    ``existing`` are weights by edge id. A reduction is scaled by the probability of the source, and
    by the share of its other partners that were returned: if few were, the turn was about something
    else.
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
        existing: Weights of edges by id.
        counts: Blame so far, by edge ``(entry, document, inhibits)``; one turn adds at most 1.
        settings: The count from which an edge is made (``inhibition_threshold``).
    """
    deltas, counted = list[LearnedDelta](), dict[EdgeId, float]()
    for item in turn.returned:
        value = credit.documents.get(item.node, 0.0) * credit.weight
        entry = find_entry(turn, item)
        if entry == item.node:
            # The document is itself an entry: the best other entry gets the edge.
            entry = find_best_seed(turn, other_than=item.node)
        if not (value and entry):
            continue
        edge = (entry, item.node, _INHIBITS)
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


def find_entry(turn: Turn, item: ReturnedDocument) -> str | None:
    """Return the node at which the query entered on the way to a document.

    A document without a path was found by search and counts as reached from the best seed. None if
    the turn has no seeds.
    """
    return item.path[0].source if item.path else find_best_seed(turn)


def find_best_seed(turn: Turn, other_than: str | None = None) -> str | None:
    """Return the best seed of a turn except ``other_than``; None if there is no other seed."""
    seeds = (seed for seed in turn.seeds if seed.node != other_than)
    best = max(seeds, key=attrgetter("score"), default=None)
    return best.node if best else None


def compute_inhibition_step(weight: float, strength: float) -> float:
    """Compute the change of an inhibitory weight for a strength in [-1, 1].

    A strength below 0 moves the weight half of the way to -0.6, one above 0 half of the way to 0,
    scaled by the strength; never beyond either.
    """
    if strength < 0:
        return min(0.0, _INHIBITION_RATE * -strength * (MIN_INHIBITION - weight))
    return max(0.0, _INHIBITION_RATE * strength * -weight)


def update_co_retrieval(
    turn: Turn,
    existing: Mapping[EdgeId, float],
    protos: Mapping[EdgeId, float],
    settings: LearningSettings,
) -> EdgeUpdate:
    """Count the pairs among the first 8 documents that were returned, or strengthen their edges.

    Arguments are as for :func:`update_co_use`, with ``passive_rate`` as h; nothing changes if that
    is 0. A new edge starts at h, as in [CrabPath], and so asleep: a walk considers it once it has
    been strengthened up to ``TierSettings.habitual``.
    """
    if not settings.passive_rate:
        return EdgeUpdate()
    returned = Credit(1.0, documents={item.node: 1.0 for item in turn.returned})
    passive = settings.replace(hebbian_rate=settings.passive_rate)
    return update_co_use(returned, existing, protos, passive, habitual=0.0)


def penalise_skips(turn: Turn, penalty: float) -> Iterator[LearnedDelta]:
    """Yield the reductions, by ``penalty``, of edges that a walk could have followed and did not.

    A weight falls to 0 at most. The penalty is η_follow of [CrabPath], which has 0.02.
    """
    for step in turn.steps if penalty else ():
        followed = {*step.chosen, *step.reflexes}
        for edge in step.candidates:
            if edge.probability > 0 and edge.weight > 0 and edge.target not in followed:
                yield LearnedDelta(step.node, edge.target, edge.kind, -min(penalty, edge.weight))


def get_action_type(item: ReturnedDocument) -> str:
    """Return the type of the action that led to a document: the kind of its strongest edge."""
    return SEARCH_ACTION if item.support is None else item.support.kind


def count_turn_steps(
    turn: Turn,
    credit: Credit,
    places: Sequence[RegionKey],
    regions: Mapping[str, Mapping[int, int]],
) -> list[TransitionCount]:
    """Return the counts that one credited turn adds; every returned document is a final step.

    A document whose use is known counts with its credit: used 1, not used or blamed 0. If only the
    outcome is known, all documents have that outcome and share the weight of one step. ``places``
    are the regions of the query, whole corpus first; ``regions`` those of each document by level.
    """
    weight, success = credit.weight, to_success(credit.outcome)
    steps = count_step(places, turn.task_type, success, weight)
    for item in turn.returned:
        action, led = get_action_type(item), regions.get(item.node, {})
        known = credit.documents.get(item.node)
        if not credit.documents:
            share = weight / len(turn.returned)
            steps += count_step(places, turn.task_type, success, share, action, led)
        # A document without inferred support is not counted as unused.
        elif known is not None and (known or item.node not in credit.inferred):
            steps += count_step(places, turn.task_type, max(0.0, known), weight, action, led)
    return sum_steps(steps)


def count_step(
    places: Sequence[RegionKey],
    task: str | None,
    success: float,
    weight: float,
    action: str = "",
    next_regions: Mapping[int, int] = MappingProxyType({}),
    *,
    is_last: bool = True,
) -> list[TransitionCount]:
    """Return the counts of one step in all its regions, for its type of task and for all types.

    Args:
        places: The regions in which the step was taken, by level and key, whole corpus first.
        task: Type of the task; None without one.
        success: Success in [0, 1].
        weight: Weight of the step, in [0, 1].
        action: Type of the step; empty for passing through the regions, whatever was done there.
        next_regions: The region that the step led to, by level; levels for which it is not known
            are left out.
        is_last: Whether the step was the last of its episode.
    """
    won = weight * success
    ended = (weight, won) if action and is_last else (0.0, 0.0)
    led = [next_regions.get(level, 0) if region else 0 for level, region in places]
    return [
        TransitionCount(*place, of, action, following, weight, won, *ended)
        for place, following in zip(places, led, strict=True)
        for of in dict.fromkeys(("", task or ""))
    ]


def sum_steps(steps: Iterable[TransitionCount]) -> list[TransitionCount]:
    """Sum counts by place; sums of zero are left out."""
    totals: dict[tuple[int, int, str, str, int], tuple[float, ...]] = {}
    for step in steps:
        previous = totals.get(step[:5], (0.0, 0.0, 0.0, 0.0))
        totals[step[:5]] = tuple(a + b for a, b in zip(previous, step[5:], strict=True))
    return [TransitionCount(*place, *counts) for place, counts in totals.items() if any(counts)]


def to_success(value: float) -> float:
    """Scale an outcome in [-1, 1] to a success in [0, 1]."""
    return (1.0 + value) / 2.0
