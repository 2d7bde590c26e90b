"""Transitions: counts of actions in regions, for the region MDP of [CVX RFC-013].

The document is listed in docs/bibliography.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from crabpath_retrievers.core.changes.history import RegionKey, TransitionCount
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import SEARCH_ACTION, ReturnedDocument, Turn


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
    """Return the counts of one step in all its regions, for its type of task and for all.

    Args:
        places: The regions in which it was taken, by level and key, whole corpus first.
        task: Type of the task; None without one.
        success: Success in [0, 1].
        weight: Its weight, in [0, 1].
        action: Its type; empty for passing through the regions, whatever was done there.
        next_regions: The region that it led to, by level; levels for which it is not known are
            left out.
        is_last: Whether it was the last of its episode.
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
