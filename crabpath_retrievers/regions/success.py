"""P(success | region, action): Beta posteriors that back off from fine to coarse regions.

Scores of all action types in one region; advice for one query.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes.history import RegionKey, TransitionCount
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.routing.policy import ActionStatistics
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.walk import Clock

_PRIOR_MEAN = 0.5  # P(success) before any evidence
_MIN_PROBABILITY = 1e-4  # bound on a probability before its log-odds are taken
_DEVIATIONS = 1.96
ANY_TASK = ""
_MIN_TRIALS = 8.0  # fewest trials of an action in a region


class SuccessModel:
    """P(success | region, action), for one chain of regions from the whole corpus to the finest.

    In every region the posterior mean ``(wins + s p) / (trials + s)`` of a Beta distribution whose
    prior mean p is the estimate of the next coarser region, shifted in log-odds by the effect of
    the region on all actions (no interaction of region and action without evidence of one). A type
    of task refines the estimate over all tasks in the same way.
    """

    def __init__(
        self, places: Sequence[RegionKey], steps: Iterable[TransitionCount], strength: float
    ) -> None:
        """Sum the counts.

        Args:
            places: The chain of regions, coarsest first.
            steps: Transition counts; those of other regions are ignored.
            strength: s, in trials.
        """
        self._strength = strength
        depth = {position: number for number, position in enumerate(places)}
        self._depth = len(places)
        self._counts: defaultdict[tuple[int, str, str], list[float]]
        self._counts = defaultdict(lambda: [0.0, 0.0])
        self._arrivals: dict[tuple[int, str], TransitionCount] = {}
        self.tasks: set[str] = set()
        for step in steps:
            position = depth.get((step.level, step.region))
            if position is None:
                continue
            self.tasks.add(step.task)
            if not step.action:
                self._arrivals[position, step.task] = step
                continue
            for action in (step.action, ""):
                count = self._counts[position, step.task, action]
                count[0] += step.trials
                count[1] += step.wins

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The action types that were ever taken, sorted."""
        return tuple(sorted({action for _, _, action in self._counts if action}))

    def success(self, action: str, task: str = ANY_TASK, depth: int | None = None) -> float:
        """Return P(success | region, action), in (0, 1); an unknown action gets the region's prior.

        Args:
            action: Action type; empty for any.
            task: Type of the task; empty for any.
            depth: Position in the chain of regions; None for the finest.
        """
        last = self._depth - 1 if depth is None else depth
        estimates = self._estimate_chain(action, ANY_TASK, last) or [_PRIOR_MEAN]
        if task == ANY_TASK or task not in self.tasks:
            return estimates[-1]
        return self._refine_for_task(action, task, estimates)

    def _estimate_chain(self, action: str, task: str, last: int) -> list[float]:
        """Return the estimates from the coarsest region to position ``last``."""
        region, estimates = _PRIOR_MEAN, list[float]()
        for position in range(last + 1):
            region_estimate = self._estimate((position, task, ""), region)
            previous = estimates[-1] if estimates else region
            prior = (
                region_estimate
                if not action
                else shift_log_odds(previous, log_odds(region_estimate) - log_odds(region))
            )
            estimates.append(
                self._estimate((position, task, action), prior) if action else region_estimate
            )
            region = region_estimate
        return estimates

    def _refine_for_task(self, action: str, task: str, estimates: Sequence[float]) -> float:
        """Refine the estimates over all tasks with the counts of one type of task."""
        shift = 0.0
        estimate = estimates[-1]
        for position, general in enumerate(estimates):
            estimate = self._estimate((position, task, action), shift_log_odds(general, shift))
            shift = log_odds(estimate) - log_odds(general)
        return estimate

    def _estimate(self, count: tuple[int, str, str], prior: float) -> float:
        trials, wins = self._counts.get(count, (0.0, 0.0))
        return self._posterior_mean(trials, wins, prior)

    def trials(self, action: str, task: str = ANY_TASK, depth: int | None = None) -> float:
        """Return how often an action was taken in the region."""
        last = self._depth - 1 if depth is None else depth
        return self._counts.get((last, task, action), (0.0, 0.0))[0]

    def measure_width(self, action: str, task: str = ANY_TASK) -> float:
        """Return half of the 95 % interval of :meth:`success`: 1.96 deviations of its posterior."""
        mean = self.success(action, task)
        trials = self.trials(action, task if task in self.tasks else ANY_TASK)
        return _DEVIATIONS * math.sqrt(mean * (1.0 - mean) / (trials + self._strength + 1.0))

    def share(self, action: str, task: str = ANY_TASK) -> float:
        """Return P(action | region), in [0, 1]: a Dirichlet posterior with the same back-off."""
        estimate = 1.0 / max(1, len(self.actions))
        for task_type in dict.fromkeys((ANY_TASK, task)):
            for position in range(self._depth):
                trials, _ = self._counts.get((position, task_type, action), (0.0, 0.0))
                all_trials, _ = self._counts.get((position, task_type, ""), (0.0, 0.0))
                estimate = self._posterior_mean(all_trials, trials, estimate)
        return estimate

    def quality(self, task: str = ANY_TASK) -> float:
        """Return P(success) of turns and episodes in the region, over all actions, in (0, 1)."""
        estimate = _PRIOR_MEAN
        for task_type in dict.fromkeys((ANY_TASK, task)):
            for position in range(self._depth):
                if arrival := self._arrivals.get((position, task_type)):
                    estimate = self._posterior_mean(arrival.trials, arrival.wins, estimate)
        return estimate

    def _posterior_mean(self, trials: float, wins: float, prior: float) -> float:
        """Return the mean of a Beta posterior."""
        # Undo leaves rounding errors: wins may not exceed trials.
        return (min(wins, trials) + self._strength * prior) / (trials + self._strength)


def log_odds(probability: float) -> float:
    """Return the log-odds of a probability, which is bounded away from 0 and 1."""
    bounded = min(1.0 - _MIN_PROBABILITY, max(_MIN_PROBABILITY, probability))
    return math.log(bounded / (1.0 - bounded))


def shift_log_odds(probability: float, shift: float) -> float:
    """Return a probability shifted in log-odds."""
    return 1.0 / (1.0 + math.exp(-(log_odds(probability) + shift)))


class ActionScore(NamedTuple):
    """Score of an action type in a region.

    Attributes:
        action: The action type.
        success: P(success | region, action), in (0, 1).
        share: P(action | region), in [0, 1].
        trials: How often it was taken in the region.
        low, high: The 95 % interval of ``success``, by its standard deviation.
    """

    action: str
    success: float
    share: float
    trials: float
    low: float
    high: float


def score_actions(chances: SuccessModel, task: str) -> list[ActionScore]:
    """Score every action type that was ever taken, sorted by name.

    Args:
        chances: Success estimates of the region.
        task: Type of the task; empty for any.
    """
    return [
        ActionScore(
            action,
            success := chances.success(action, task),
            chances.share(action, task),
            chances.trials(action, task),
            max(0.0, success - (width := chances.measure_width(action, task))),
            min(1.0, success + width),
        )
        for action in chances.actions
    ]


def list_tried_actions(
    read: Reader,
    regions: Regions,
    settings: RegionSettings,
    vector: Vector,
    clock: Clock,
    task: str | None,
) -> list[ActionStatistics]:
    """Return the actions with enough trials, each in the finest region of a query that has them.

    One product with the hubs, one database query; empty if the corpus has no regions.

    Args:
        read: Reader of the graph store.
        regions: Regions of the corpus.
        settings: Strength of the prior.
        vector: Unit query vector, shape ``[d]``.
        clock: State of the namespace.
        task: Type of the task; None without one.
    """
    places = regions.places(vector, clock.hubs, read) if clock.hubs else ()
    steps = read.regions.get_transitions(clock.key, places) if places else ()
    chances = SuccessModel(places, steps, settings.prior_trials)
    found = []
    for action in chances.actions:
        for depth in range(len(places) - 1, 0, -1):
            trials = chances.trials(action, depth=depth)
            if trials >= _MIN_TRIALS:
                success = chances.success(action, task or ANY_TASK, depth)
                found.append(ActionStatistics(action, success, trials))
                break
    return found
