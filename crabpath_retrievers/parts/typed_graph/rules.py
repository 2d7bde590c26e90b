"""Typed edges of [CVX RFC-013]: signed edges between documents, learned from turns and episodes.

The document is listed in docs/bibliography.md.

Observations of a signed edge: each moves its weight a share of the way to a bound.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

from crabpath_retrievers.core.changes import EdgeId, LearnedDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import SEARCH_ACTION, EdgeKind, ReturnedDocument, Turn
from crabpath_retrievers.learning.rules import find_entry, get_action_type


class EdgeObservation(NamedTuple):
    """One observation of an edge.

    ``strength`` is in [0, 1]; the weight moves towards ``bound``, in [-1, 1].
    """

    source: str
    target: str
    kind: EdgeKind
    strength: float
    bound: float = 1.0


def make_signed_observation(
    source: str, target: str, kind: EdgeKind, value: float
) -> EdgeObservation:
    """Build an observation of strength ``min(1, |value|)`` of an edge.

    It pulls the edge towards 1 if ``value`` is above 0 (a success), else towards -1.
    """
    return EdgeObservation(source, target, kind, min(1.0, abs(value)), 1.0 if value > 0 else -1.0)


def apply_observations(
    pulls: Iterable[EdgeObservation], existing: Mapping[EdgeId, float], rate: float
) -> list[LearnedDelta]:
    """Return the changes ``h · strength · (bound − w)``, applied one after the other.

    This is the Hebbian step with a sign. A new edge starts from 0. No weight moves away from the
    sign of its bound, even if a user has set it beyond. ``existing`` are the weights that the
    namespace has learned; ``rate`` is h, in (0, 1].
    """
    current: dict[EdgeId, float] = {}
    deltas = []
    for pull in pulls:
        name = (pull.source, pull.target, pull.kind.label)
        weight = current.get(name, existing.get(name, 0.0))
        step = rate * pull.strength * (pull.bound - weight)
        step = max(0.0, step) if pull.bound > 0 else min(0.0, step)
        if step:
            current[name] = weight + step
            deltas.append(LearnedDelta(*name, step))
    return deltas


MIN_IRRELEVANT = -0.3
"""Lowest weight of ``irrelevant``: an unused document did less harm than a misleading one."""

_MAX_NEIGHBOURS = 3  # documents on either side of a step between two turns: 9 edges


@dataclass(frozen=True, slots=True)
class TypedEdgeContext:
    """Context of a turn for typed edges, in node ids.

    Attributes:
        query_hub: Hub of the region of its query; None if the corpus has no regions.
        document_hubs: Hubs of the regions of the returned documents, by document id.
        used_before: Documents that the turn before used, best first.
    """

    query_hub: str | None = None
    document_hubs: Mapping[str, str] = field(default_factory=dict)
    used_before: Sequence[str] = ()


def learn_typed_edges(
    turn: Turn,
    credit: Credit,
    fair: Credit,
    situation: TypedEdgeContext,
    existing: Mapping[EdgeId, float],
    rate: float,
) -> list[LearnedDelta]:
    """Return the changes of typed edges after a credited turn, each towards its bound by ``rate``.

    Only documents with known use count; an outcome alone moves ``region_transition``, by the share
    of each document. ``fair`` is the credit with the blame shared out; ``situation`` has the
    regions of the turn and the documents used before it; ``existing`` are the learned weights.
    """
    used = [item for item in turn.returned if credit.documents.get(item.node)]
    observations = [
        *_observe_causes(turn, fair),
        *_observe_irrelevant(turn, credit),
        *_observe_regions(turn, fair, situation),
        *_observe_same_action(turn, fair, existing),
        *_observe_order(used, credit, situation.used_before),
    ]
    return apply_observations(observations, existing, rate)


def _observe_causes(turn: Turn, credit: Credit) -> Iterator[EdgeObservation]:
    """Yield edges from the entry to documents used in a success or followed in a failure.

    ``credit`` has the blame shared out.
    """
    for item, value in _list_credited(turn, credit):
        entry = find_entry(turn, item)
        if entry and entry != item.node:
            yield make_signed_observation(
                entry, item.node, _get_cause_kind(value), value * credit.weight
            )


def _observe_irrelevant(turn: Turn, credit: Credit) -> Iterator[EdgeObservation]:
    """Yield edges from the entry to documents that a failed turn returned, stated as unused."""
    if credit.outcome >= 0:
        return
    strength = credit.weight * -credit.outcome
    for item in turn.returned:
        is_stated = item.node in credit.documents and item.node not in credit.inferred
        entry = find_entry(turn, item)
        if is_stated and not credit.documents[item.node] and entry and entry != item.node:
            yield EdgeObservation(entry, item.node, EdgeKind.IRRELEVANT, strength, MIN_IRRELEVANT)


def _observe_regions(
    turn: Turn, credit: Credit, situation: TypedEdgeContext
) -> Iterator[EdgeObservation]:
    """Yield edges from the query's region to those of the documents; both may be the same.

    ``credit`` has the blame shared out, ``situation`` the regions; none if they are not known.
    """
    if situation.query_hub is None or not turn.returned:
        return
    totals: defaultdict[str, float] = defaultdict(float)
    share = credit.outcome / len(turn.returned)
    for item in turn.returned:
        if item.node in situation.document_hubs:
            value = credit.documents.get(item.node, 0.0) if credit.documents else share
            totals[situation.document_hubs[item.node]] += value * credit.weight
    for home, value in totals.items():
        if value:
            yield make_signed_observation(
                situation.query_hub, home, EdgeKind.REGION_TRANSITION, value
            )


def _observe_same_action(
    turn: Turn, credit: Credit, existing: Mapping[EdgeId, float]
) -> Iterator[EdgeObservation]:
    """Yield edges from each used document to at most two others found by the same action.

    The first was used in this turn as well, the next in rank. The second comes from earlier turns:
    the strongest ``caused_success`` (after a failure ``caused_failure``) of the same entry, among
    the documents that the same action found in this turn.
    """
    credited = list(_list_credited(turn, credit))
    actions = _map_actions(turn)
    for position, (item, value) in enumerate(credited):
        action = get_action_type(item)
        later = (
            other.node
            for other, other_value in credited[position + 1 :]
            if get_action_type(other) == action and (other_value > 0) == (value > 0)
        )
        entry = find_entry(turn, item)
        earlier = (
            node
            for node in _list_earlier_causes(entry, _get_cause_kind(value), existing)
            if actions.get(node) == action and node != item.node
        )
        strength = value * credit.weight
        for node in dict.fromkeys((*islice(later, 1), *islice(earlier, 1))):
            yield make_signed_observation(item.node, node, EdgeKind.SAME_ACTION, strength)


def _list_earlier_causes(
    entry: str | None, kind: EdgeKind, existing: Mapping[EdgeId, float]
) -> list[str]:
    """Return the targets of an entry node's edges of this kind, strongest first; none for None.

    ``existing`` are the learned weights by edge id.
    """
    candidates = [
        (abs(weight), target)
        for (source, target, label), weight in existing.items()
        if source == entry and label == kind.label and weight
    ]
    return [target for _, target in sorted(candidates, key=lambda item: (-item[0], item[1]))]


def _map_actions(turn: Turn) -> dict[str, str]:
    """Return the action type that led to each node of a turn: its strongest edge, else search."""
    actions = dict.fromkeys((seed.node for seed in turn.seeds), SEARCH_ACTION)
    considered = [candidate for step in turn.steps for candidate in step.candidates]
    for candidate in sorted(considered, key=lambda candidate: candidate.weight):
        if candidate.weight > 0:
            actions[candidate.target] = candidate.kind
    return actions | {item.node: get_action_type(item) for item in turn.returned}


def _observe_order(
    used: Sequence[ReturnedDocument], credit: Credit, before: Sequence[str]
) -> Iterator[EdgeObservation]:
    """Yield edges along paths to used documents, and from documents used by the turn before.

    The edges show the order only; the outcome is in the other kinds. ``before`` are the documents
    of the turn before, best first.
    """
    steps = [(edge.source, edge.target) for item in used for edge in item.path]
    latest = sorted(used, key=lambda item: -abs(credit.documents[item.node]))[:_MAX_NEIGHBOURS]
    steps += [(a, item.node) for a in before[:_MAX_NEIGHBOURS] for item in latest]
    for source, target in dict.fromkeys(steps):
        if source != target:
            yield EdgeObservation(source, target, EdgeKind.TEMPORAL, credit.weight)


def learn_episode_edges(
    nodes: Sequence[str | None],
    homes: Sequence[str | None],
    reward: float,
    existing: Mapping[EdgeId, float],
    rate: float,
) -> list[LearnedDelta]:
    """Return the changes of typed edges after an agent episode: order and outcome of its steps.

    Args:
        nodes: Ids of the documents that were the states; None for other states.
        homes: Hubs of the regions of the states; None if unknown.
        reward: Outcome of the episode, in [-1, 1].
        existing: Weights that the namespace has learned, by edge id.
        rate: h, in (0, 1].
    """
    observations: list[EdgeObservation] = []
    for source, target in _list_steps(nodes):
        observations.append(EdgeObservation(source, target, EdgeKind.TEMPORAL, 1.0))
        observations += (
            [make_signed_observation(source, target, _get_cause_kind(reward), reward)]
            if reward
            else []
        )
    for source, target in _list_steps(homes, stay=True) if reward else ():
        observations.append(
            make_signed_observation(source, target, EdgeKind.REGION_TRANSITION, reward)
        )
    return apply_observations(observations, existing, rate)


def _list_steps(nodes: Iterable[str | None], *, stay: bool = False) -> dict[tuple[str, str], None]:
    """List the steps from each node to the next, every step once.

    A step from or to None is left out, and one from a node to itself unless ``stay``.
    """
    return {
        (a, b): None
        for a, b in pairwise(nodes)
        if a is not None and b is not None and (stay or a != b)
    }


def _list_credited(turn: Turn, credit: Credit) -> Iterator[tuple[ReturnedDocument, float]]:
    """Yield the used documents with their credit."""
    for item in turn.returned:
        if value := credit.documents.get(item.node, 0.0):
            yield item, value


def _get_cause_kind(value: float) -> EdgeKind:
    return EdgeKind.CAUSED_SUCCESS if value > 0 else EdgeKind.CAUSED_FAILURE
