"""Typed edges: what came of a turn, as signed edges that searches can follow (document 004 B)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.learning.blame import entry_of
from crabpath_retrievers.learning.delta import EdgeName, LearnedDelta
from crabpath_retrievers.learning.pull import Pull, moved, signed
from crabpath_retrievers.learning.steps import SEARCH, action_of
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Returned, Turn

NEEDLESS = -0.3
"""Lowest weight of ``irrelevant``: what was ignored did less harm than what misled."""

_MAX_NEIGHBOURS = 3  # documents on either side of the step from one turn to the next: 9 edges


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a turn stood, in ids.

    Attributes:
        home: Hub of the region of its query; None where the corpus has no regions.
        homes: Hubs of the regions of what it returned, by id of the document.
        before: What the turn before it used, best first.
    """

    home: str | None = None
    homes: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()


def typed_edges(
    turn: Turn,
    credit: Credit,
    fair: Credit,
    situation: Situation,
    existing: Mapping[EdgeName, float],
    rate: float,
) -> list[LearnedDelta]:
    """What a judged turn says of typed edges; each moves towards its bound by ``rate``.

    Only what is known to have been used, or not: an outcome alone moves ``region_transition``,
    by its share, and nothing else.

    Args:
        turn: How each document was reached.
        credit: What became of it.
        fair: The same, each blame as far as its document answers for the failure.
        situation: Where the turn stood.
        existing: Weights of the edges that this namespace has learned, by name.
        rate: Share of the way to the bound that one turn moves an edge, in (0, 1].
    """
    used = [item for item in turn.returned if credit.documents.get(item.node)]
    observations = [
        *_observe_causes(turn, fair),
        *_observe_irrelevant(turn, credit),
        *_observe_regions(turn, fair, situation),
        *_observe_same_action(turn, fair, existing),
        *_observe_order(used, credit, situation.before),
    ]
    return moved(observations, existing, rate)


def _observe_causes(turn: Turn, credit: Credit) -> Iterator[Pull]:
    """From the entry to what a success rests on, or to what a failure followed."""
    for item, value in _list_credited(turn, credit):
        entry = entry_of(turn, item)
        if entry and entry != item.node:
            yield signed(entry, item.node, _cause_kind(value), value * credit.weight)


def _observe_irrelevant(turn: Turn, credit: Credit) -> Iterator[Pull]:
    """From the entry to what a failed turn returned and did not use, where that was said."""
    if credit.outcome >= 0:
        return
    strength = credit.weight * -credit.outcome
    for item in turn.returned:
        is_stated = item.node in credit.documents and item.node not in credit.inferred
        entry = entry_of(turn, item)
        if is_stated and not credit.documents[item.node] and entry and entry != item.node:
            yield Pull(entry, item.node, EdgeKind.IRRELEVANT, strength, NEEDLESS)


def _observe_regions(turn: Turn, credit: Credit, situation: Situation) -> Iterator[Pull]:
    """From the region of the query to those that the turn led to; a region may lead to itself."""
    if situation.home is None or not turn.returned:
        return
    totals: defaultdict[str, float] = defaultdict(float)
    share = credit.outcome / len(turn.returned)
    for item in turn.returned:
        if item.node in situation.homes:
            value = credit.documents.get(item.node, 0.0) if credit.documents else share
            totals[situation.homes[item.node]] += value * credit.weight
    for home, value in totals.items():
        if value:
            yield signed(situation.home, home, EdgeKind.REGION_TRANSITION, value)


def _observe_same_action(
    turn: Turn, credit: Credit, existing: Mapping[EdgeName, float]
) -> Iterator[Pull]:
    """From each used document to at most two that the same type of action leads to.

    One that this turn used as well, the next in rank. And one of earlier turns: what came of the
    same entry in the same way before, by the strongest ``caused_success`` (after a failure
    ``caused_failure``) among what the same action finds in this turn too.
    """
    credited = list(_list_credited(turn, credit))
    actions = _map_actions(turn)
    for position, (item, value) in enumerate(credited):
        action = action_of(item)
        later = (
            other.node
            for other, other_value in credited[position + 1 :]
            if action_of(other) == action and (other_value > 0) == (value > 0)
        )
        entry = entry_of(turn, item)
        earlier = (
            node
            for node in _list_earlier_causes(entry, _cause_kind(value), existing)
            if actions.get(node) == action and node != item.node
        )
        strength = value * credit.weight
        for node in dict.fromkeys((*islice(later, 1), *islice(earlier, 1))):
            yield signed(item.node, node, EdgeKind.SAME_ACTION, strength)


def _list_earlier_causes(
    entry: str | None, kind: EdgeKind, existing: Mapping[EdgeName, float]
) -> list[str]:
    """What came of an entry before, the strongest first."""
    candidates = [
        (abs(weight), target)
        for (source, target, label), weight in existing.items()
        if source == entry and label == kind.label and weight
    ]
    return [target for _, target in sorted(candidates, key=lambda item: (-item[0], item[1]))]


def _map_actions(turn: Turn) -> dict[str, str]:
    """Which type of action leads to each node of a turn: its strongest pointer, else search."""
    actions = dict.fromkeys((seed.node for seed in turn.seeds), SEARCH)
    pointers = [candidate for step in turn.steps for candidate in step.candidates]
    for candidate in sorted(pointers, key=lambda candidate: candidate.weight):
        if candidate.weight > 0:
            actions[candidate.target] = candidate.kind
    return actions | {item.node: action_of(item) for item in turn.returned}


def _observe_order(
    used: Sequence[Returned], credit: Credit, before: Sequence[str]
) -> Iterator[Pull]:
    """Along the routes to what was used, and from what the turn before used; whatever came of it.

    The order is a fact; what came of it stands in the other kinds.
    """
    steps = [(edge.source, edge.target) for item in used for edge in item.path]
    latest = sorted(used, key=lambda item: -abs(credit.documents[item.node]))[:_MAX_NEIGHBOURS]
    steps += [(a, item.node) for a in before[:_MAX_NEIGHBOURS] for item in latest]
    for source, target in dict.fromkeys(steps):
        if source != target:
            yield Pull(source, target, EdgeKind.TEMPORAL, credit.weight)


def of_episode(
    nodes: Sequence[str | None],
    homes: Sequence[str | None],
    reward: float,
    existing: Mapping[EdgeName, float],
    rate: float,
) -> list[LearnedDelta]:
    """What a user's own episode says: the order of its states, and what came of each step.

    Args:
        nodes: Which document each state is; None where it is none.
        homes: Hubs of the regions of the states.
        reward: How it ended, in [-1, 1].
        existing: Weights of the edges that the namespace has learned, by name.
        rate: As for turns.
    """
    observations: list[Pull] = []
    for source, target in _list_steps(nodes):
        observations.append(Pull(source, target, EdgeKind.TEMPORAL, 1.0))
        observations += [signed(source, target, _cause_kind(reward), reward)] if reward else []
    for source, target in _list_steps(homes, stay=True) if reward else ():
        observations.append(signed(source, target, EdgeKind.REGION_TRANSITION, reward))
    return moved(observations, existing, rate)


def _list_steps(nodes: Iterable[str | None], *, stay: bool = False) -> dict[tuple[str, str], None]:
    """From each to the next, every step once."""
    return {
        (a, b): None
        for a, b in pairwise(nodes)
        if a is not None and b is not None and (stay or a != b)
    }


def _list_credited(turn: Turn, credit: Credit) -> Iterator[tuple[Returned, float]]:
    """Documents that were used, with their credit."""
    for item in turn.returned:
        if value := credit.documents.get(item.node, 0.0):
            yield item, value


def _cause_kind(value: float) -> EdgeKind:
    return EdgeKind.CAUSED_SUCCESS if value > 0 else EdgeKind.CAUSED_FAILURE
