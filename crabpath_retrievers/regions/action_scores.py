"""How each type of action does in one region."""

from typing import NamedTuple

from crabpath_retrievers.regions.chances import Chances


class ActionScore(NamedTuple):
    """An action in a region.

    Attributes:
        action: Its type.
        success: P(success | region, action), in (0, 1).
        share: P(action | region), in [0, 1].
        trials: How often it was taken there.
    """

    action: str
    success: float
    share: float
    trials: float


def action_scores(chances: Chances, task: str) -> list[ActionScore]:
    """Of every action that was ever taken, sorted by its type.

    Args:
        chances: How likely steps succeed in the region.
        task: Type of the task; empty for any.
    """
    return [
        ActionScore(
            action,
            chances.success(action, task),
            chances.share(action, task),
            chances.trials(action, task),
        )
        for action in chances.actions
    ]
