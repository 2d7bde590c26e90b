"""Transitions: counts of actions in regions, for the region MDP of [CVX RFC-013].

The document is listed in docs/bibliography.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from crabpath_retrievers.core.changes.history import RegionKey, TransitionCount
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.turn import SEARCH_ACTION, ReturnedDocument, Turn


class ObservedStep(NamedTuple):
    """One observed step of an episode.

    Attributes:
        places: The regions in which it was taken, by level and key, whole corpus first.
        action: Its type.
        next_regions: The region that it led to, by level; levels for which it is not known are left
            out.
        success: Success in [0, 1].
        weight: Its weight, in [0, 1].
        is_last: Whether it was the last of its episode.
    """

    places: Sequence[RegionKey]
    action: str
    next_regions: Mapping[int, int]
    success: float
    weight: float = 1.0
    is_last: bool = True


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
    outcome is known, all documents share it, and the weight of one step.

    Args:
        turn: The turn with its returned documents.
        credit: Its credit.
        places: The regions of the query, whole corpus first.
        regions: Regions of each document, by id and level.
    """
    tasks = dict.fromkeys(("", turn.task_type or ""))
    weight, won = credit.weight, credit.weight * to_success(credit.outcome)
    arrivals = [
        TransitionCount(*place, task, "", 0, weight, won) for place in places for task in tasks
    ]
    observed = _observe_returned(turn, credit, places, regions)
    return sum_steps([*arrivals, *count_steps(observed, tasks)])


def _observe_returned(
    turn: Turn,
    credit: Credit,
    places: Sequence[RegionKey],
    regions: Mapping[str, Mapping[int, int]],
) -> Iterator[ObservedStep]:
    for item in turn.returned:
        led = regions.get(item.node, {})
        if not credit.documents:
            share = credit.weight / len(turn.returned)
            yield ObservedStep(
                places, get_action_type(item), led, to_success(credit.outcome), share
            )
            continue
        known = credit.documents.get(item.node)
        # A document without inferred support is not counted as unused.
        if known is not None and (known or item.node not in credit.inferred):
            yield ObservedStep(places, get_action_type(item), led, max(0.0, known), credit.weight)


def count_steps(
    observed: Iterable[ObservedStep], tasks: Iterable[str]
) -> Iterator[TransitionCount]:
    """Yield the counts of steps, in all regions in which they were taken and for all task types."""
    task_types = tuple(tasks)
    for step in observed:
        won = step.weight * step.success
        ended = (step.weight, won) if step.is_last else (0.0, 0.0)
        for level, region in step.places:
            for task in task_types:
                led = step.next_regions.get(level, 0)
                yield TransitionCount(
                    level, region, task, step.action, led, step.weight, won, *ended
                )


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
