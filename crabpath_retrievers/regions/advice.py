"""Advice of the region MDP for one query."""

from collections.abc import Sequence
from dataclasses import dataclass

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes.history import RegionKey
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.regions.success import ANY_TASK, SuccessModel, log_odds
from crabpath_retrievers.routing.mdp_hint import ActionStatistics
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.walk import Clock

_MIN_TRIALS = 8.0  # fewest trials of an action in a region


@dataclass(frozen=True, slots=True)
class RegionAdvice:
    """Success estimates of actions in the regions of a query.

    Attributes:
        places: The regions of the query, whole corpus first.
        chances: Success estimates in these regions.
        task: Type of the task; empty if none is given.
    """

    places: Sequence[RegionKey]
    chances: SuccessModel
    task: str

    def score_action(self, action: str) -> float:
        """Return how much better an action does here than elsewhere, in log-odds; 0 if not known.

        Relative to the other actions: the effect of a region on all actions is removed.
        """
        in_region = self._log_odds(action, self.task) - self._log_odds("", self.task)
        return in_region - self._log_odds(action, ANY_TASK, 0) + self._log_odds("", ANY_TASK, 0)

    def _log_odds(self, action: str, task: str, depth: int | None = None) -> float:
        return log_odds(self.chances.success(action, task, depth))

    def list_tried_actions(self) -> list[ActionStatistics]:
        """Return the actions with enough trials, each in the finest region that has them."""
        return [
            ActionStatistics(action, self.chances.success(action, self.task, depth), trials)
            for action in self.chances.actions
            for depth, trials in self._find_finest(action)
        ]

    def _find_finest(self, action: str) -> list[tuple[int, float]]:
        """Return the depth and trials of the finest region in which an action has enough trials."""
        finest_first = range(len(self.places) - 1, 0, -1)
        trials = ((depth, self.chances.trials(action, depth=depth)) for depth in finest_first)
        return [pair for pair in trials if pair[1] >= _MIN_TRIALS][:1]


@dataclass(frozen=True, slots=True)
class RegionAdvisor:
    """Reads advice for a query: one product with the hubs, one database query."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings

    def advice(self, vector: Vector, clock: Clock, task: str | None) -> RegionAdvice | None:
        """Return the advice for a query in a namespace; None if the corpus has no regions.

        Args:
            vector: Unit query vector, shape ``[d]``.
            clock: Position of the namespace.
            task: Type of the task.
        """
        if not clock.hubs:
            return None
        places = self.regions.places(vector, clock.hubs)
        steps = self.store.regions.get_transitions(clock.key, places)
        if not steps:
            return None
        return RegionAdvice(
            places, SuccessModel(places, steps, self.settings.prior_trials), task or ANY_TASK
        )
