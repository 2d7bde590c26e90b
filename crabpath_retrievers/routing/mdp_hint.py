"""One line of a router's prompt: how actions succeeded in the query's region (Region MDP)."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from crabpath_retrievers.core.text import quote_as_json

_MAX_ACTIONS = 4
_MAX_LABEL = 40  # characters of an action; labels of users may be of any length
_SHARE = 6  # the line may take one sixth of the room


class ActionStatistics(NamedTuple):
    """Success of an action in the region of a query.

    Attributes:
        action: Kind of an edge, ``search``, or a label of the user.
        success: P(success), in (0, 1).
        trials: Number of times that the action was taken.
    """

    action: str
    success: float
    trials: float


def format_experience(
    tried: Sequence[ActionStatistics],
    offered: Collection[str],
    count: Callable[[str], int],
    room: int,
) -> str:
    """Success of at most four actions; empty if nothing is known or no room is left.

    Args:
        tried: Success of actions in the query's region.
        offered: Actions that the router may choose now. They come first; within both groups the
            order is by number of trials.
        count: Counts the tokens of a text.
        room: Tokens available for the prompt; at most a sixth of them is used.
    """
    order = sorted(tried, key=lambda one: (one.action not in offered, -one.trials))
    for number in range(min(_MAX_ACTIONS, len(order)), 0, -1):
        line = _format_line(order[:number])
        if count(line) <= room // _SHARE:
            return line
    return ""


def _format_line(tried: Sequence[ActionStatistics]) -> str:
    first, *others = sorted(tried, key=lambda one: -one.success)
    parts = [f"{_quote_label(first)} helped in {first.success:.0%} of {first.trials:.0f} steps"]
    parts += [f"{_quote_label(one)} in {one.success:.0%} of {one.trials:.0f}" for one in others]
    return f"Experience here: {', '.join(parts)}."


def _quote_label(one: ActionStatistics) -> str:
    return quote_as_json(" ".join(one.action.split())[:_MAX_LABEL])
