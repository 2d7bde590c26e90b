"""What a router is told of the region in which a query lies, in one line."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from crabpath_retrievers.routing.quoting import quoted

_MOST = 4
_LONGEST = 40  # characters of an action: users' own labels may hold anything
_SHARE = 6  # of the room for a prompt, one part may go to the line


class Tried(NamedTuple):
    """A kind of step that was taken where a query lies.

    Attributes:
        action: Its type: the kind of a pointer, ``search``, or a user's own label.
        success: P(success), in (0, 1).
        trials: How often it was taken.
    """

    action: str
    success: float
    trials: float


def experience_line(
    tried: Sequence[Tried], offered: Collection[str], count: Callable[[str], int], room: int
) -> str:
    """Which steps helped, four at most; empty where nothing is known or no room is left.

    Args:
        tried: What is known.
        offered: Actions that the router may choose now; these are named first, then the others,
            those that were tried most before the rest.
        count: Tokens of a text.
        room: Tokens of all that is shown; at most a sixth of it is used.
    """
    order = sorted(tried, key=lambda one: (one.action not in offered, -one.trials))
    for named in range(min(_MOST, len(order)), 0, -1):
        line = _line(order[:named])
        if count(line) <= room // _SHARE:
            return line
    return ""


def _line(tried: Sequence[Tried]) -> str:
    first, *others = sorted(tried, key=lambda one: -one.success)
    told = [f"{_name(first)} helped in {first.success:.0%} of {first.trials:.0f} steps"]
    told += [f"{_name(one)} in {one.success:.0%} of {one.trials:.0f}" for one in others]
    return f"Experience here: {', '.join(told)}."


def _name(one: Tried) -> str:
    return quoted(" ".join(one.action.split())[:_LONGEST])
