"""Scores of all action types in one region."""

from typing import NamedTuple

from crabpath_retrievers.regions.chances import SuccessModel


class ActionScore(NamedTuple):
    """Score of an action type in a region.

    Attributes:
        action: The action type.
        success: P(success | region, action), in (0, 1).
        share: P(action | region), in [0, 1].
        trials: How often it was taken in the region.
    """

    action: str
    success: float
    share: float
    trials: float


def score_actions(chances: SuccessModel, task: str) -> list[ActionScore]:
    """Score every action type that was ever taken, sorted by name.

    Args:
        chances: Success estimates of the region.
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
