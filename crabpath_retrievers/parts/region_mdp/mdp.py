"""The Markov decision process over regions: which action succeeds where.

After [CVX RFC-013] (docs/bibliography.md).

Transition counts of one namespace on one level, grouped for the region MDP.

Value iteration: the value of each region under the best actions from there on.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes import RegionKey, TransitionCount
from crabpath_retrievers.core.query import require_number
from crabpath_retrievers.core.records import Vector, stretch_cosine
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.regions import (
    ANY_TASK,
    Hubs,
    SuccessModel,
    log_odds,
    shift_log_odds,
)
from crabpath_retrievers.storage import GraphStore

_HALF = 0.5  # of an episode: counts that were undone are not exactly 0


def find_whole(level: int) -> RegionKey:
    """Return the region that stands for all regions of a level, or for all states of agents."""
    return (min(level, 0), 0)


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


@dataclass(frozen=True)
class RegionCounts:
    """Transition counts at one version, grouped once."""

    version: Hashable
    steps: Sequence[TransitionCount]
    level: int
    strength: float
    _chances: dict[int, SuccessModel] = field(default_factory=dict)
    solutions: dict[tuple[str, float], "ValueFunction"] = field(default_factory=dict)

    @cached_property
    def by_region(self) -> Mapping[int, Sequence[TransitionCount]]:
        """Counts of the level by key of the region."""
        steps_by_region: dict[int, list[TransitionCount]] = {}
        for step in self.steps:
            if step.region:
                steps_by_region.setdefault(step.region, []).append(step)
        return steps_by_region

    @cached_property
    def won_regions(self) -> frozenset[int]:
        """Keys of the regions that an agent passed in an episode that it won."""
        arrivals = (step for step in self.steps if step.region and not step.action)
        return frozenset(step.region for step in arrivals if step.ends > _HALF)

    @cached_property
    def everywhere(self) -> Sequence[TransitionCount]:
        """Counts of all regions together."""
        return [step for step in self.steps if not step.region]

    @cached_property
    def actions(self) -> frozenset[str]:
        """All action types."""
        return frozenset(step.action for step in self.steps if step.action)

    def chances(self, region: int) -> SuccessModel:
        """Return the success estimates of one region."""
        if region not in self._chances:
            places = (find_whole(self.level), (self.level, region))
            steps = (*self.everywhere, *self.by_region.get(region, ()))
            self._chances[region] = SuccessModel(places, steps, self.strength)
        return self._chances[region]


_MAX_ROUNDS = 10_000
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class ValueFunction:
    """The fixed point of the Bellman optimality equation.

    Attributes:
        values: By key of the region: P(success) under the best actions, in [0, 1].
        actions: By key of the region: the best action.
        rounds: Number of sweeps.
    """

    values: Mapping[int, float]
    actions: Mapping[int, str]
    rounds: int


def run_value_iteration(
    steps: Sequence[TransitionCount], success: Mapping[tuple[int, str], float], discount: float
) -> ValueFunction:
    """Compute the value of every region under the best actions, as a chance of success.

    ``V(s) = max_a e R + (1 - e) ((1 - γ) R + γ Σ_s' P(s' | s, a) V(s'))``, ``e = P(end | s, a)``.
    Bellman (1957, ch. XI) with the reward R = P(success | s, a) of [CVX RFC-013] at every step,
    scaled so that values are probabilities. A step to an unknown region, or to one without counted
    actions, counts as the last one.

    Args:
        steps: Transition counts of one level and task; those without action are ignored.
        success: P(success | region, action) of every region and action among them.
        discount: γ in (0, 1).
    """
    tried = [step for step in steps if step.action and step.trials > 0]
    if not tried:
        return ValueFunction({}, {}, 0)
    regions = sorted({step.region for step in tried})
    index_of_region = {region: index for index, region in enumerate(regions)}
    moves = sorted({(step.region, step.action) for step in tried})
    index_of_move = {move: index for index, move in enumerate(moves)}
    move = np.array([index_of_move[step.region, step.action] for step in tried])
    next_index = np.array([index_of_region.get(step.next, 0) for step in tried])
    continuing = np.array([s.trials - s.ends if s.next in index_of_region else 0.0 for s in tried])
    total = np.bincount(move, [step.trials for step in tried])
    next_probability = continuing / total[move]
    end_probability = 1.0 - np.bincount(move, next_probability)
    success_of = np.array([success[pair] for pair in moves])
    reward = success_of * (end_probability + (1.0 - end_probability) * (1.0 - discount))
    region_index = np.array([index_of_region[region] for region, _ in moves])
    values = np.zeros(len(regions))
    change, rounds = 1.0, 0
    while change >= _TOLERANCE and rounds < _MAX_ROUNDS:
        action_values = reward + discount * np.bincount(
            move, next_probability * values[next_index], len(moves)
        )
        new = np.zeros(len(regions))
        np.maximum.at(new, region_index, action_values)
        change = float(np.abs(new - values).max())
        values, rounds = new, rounds + 1
    best = {
        moves[index][0]: moves[index][1]
        for index in np.argsort(action_values, kind="stable").tolist()
    }
    return ValueFunction(dict(zip(regions, values.tolist(), strict=True)), best, rounds)


class StrategyStep(NamedTuple):
    """One step of a strategy: an action in a region, and the region that it mostly leads to.

    Attributes:
        region: Id of the region's hub.
        action: The action type to take.
        success: P(success | region, action).
        next_region: The likeliest next region, if the episode goes on; None if it mostly ends.
        probability: P(next_region | region, action), or of the end.
    """

    region: str
    action: str
    success: float
    next_region: str | None
    probability: float


class PastState(NamedTuple):
    """A state of an episode that an agent won.

    Attributes:
        region: Its id, the region of ``mdp("states")`` that it is.
        text: What the agent saw.
        similarity: To what was asked for: 1 for equal texts, about 0 for unrelated ones.
        steps: What to do from there on, as :meth:`RegionModel.strategy_for` says.
    """

    region: str
    text: str
    similarity: float
    steps: Sequence[StrategyStep]


class RegionValues(NamedTuple):
    """Value and best action of every region with a counted action, by id of its hub."""

    values: Mapping[str, float]
    actions: Mapping[str, str]
    rounds: int


class RegionModel:
    """States are regions, actions are types of steps, the reward is the outcome of the episode.

    It reads the counts that a namespace keeps and is always up to date with them. Regions are named
    by the ids of their hubs.
    """

    def __init__(
        self,
        store: GraphStore,
        hubs: Callable[[], Hubs],
        settings: RegionSettings,
        namespace: str,
        level: int,
    ) -> None:
        """Create a model; use ``RegionMDP``, or ``RegionModels`` if there is only a graph store.

        Args:
            store: The graph store.
            hubs: Reads the present hubs of the level.
            settings: Strength of the prior, discount.
            namespace: The namespace whose counts are read.
            level: Level of the regions, on which transitions are counted.
        """
        self._store, self._settings = store, settings
        self.read_hubs = hubs
        self.namespace, self.level = namespace, level
        self._cached: RegionCounts | None = None

    @property
    def regions(self) -> tuple[str, ...]:
        """Ids of all hubs of the level."""
        return self.read_hubs().ids

    @property
    def visited_regions(self) -> tuple[str, ...]:
        """Ids of the regions in which an action was taken."""
        keys = self._region_counts.by_region
        return tuple(name for key, name in self.read_hubs().names.items() if key in keys)

    @property
    def actions(self) -> tuple[str, ...]:
        """Action types that were ever taken, sorted."""
        return tuple(sorted(self._region_counts.actions))

    def transition_probability(
        self, region: str, action: str, next_region: str | None, task_type: str | None = None
    ) -> float:
        """Return P(next region | region, action), in [0, 1].

        ``next_region`` None is the end of the episode; ``task_type`` None counts all tasks. The
        probability is the share of ``next_region`` among the steps with this action and a known
        next region; 0 if there are none. A step that ended its episode counts for the end only.

        Raises:
            NotFoundError: Unknown region or action.
        """
        next_counts = self._count_next(
            self._get_key(region), self._require_action(action), task_type
        )
        target = None if next_region is None else self._get_key(next_region)
        total = sum(next_counts.values())
        return next_counts.get(target, 0.0) / total if total else 0.0

    def success_probability(self, region: str, action: str, task_type: str | None = None) -> float:
        """Return P(success | region, action), in (0, 1): a Beta posterior that backs off.

        ``task_type`` None counts all tasks.

        Raises:
            NotFoundError: Unknown region or action.
        """
        chances = self._region_counts.chances(self._get_key(region))
        return chances.success(self._require_action(action), task_type or ANY_TASK)

    def episode_success(
        self, steps: Sequence[tuple[str, str]], task_type: str | None = None
    ) -> float:
        """Return the probability that an episode that began with these steps succeeds, in (0, 1).

        The mean over its steps, in log-odds, of P(success | region, action) and P(success |
        region): a logarithmic opinion pool with equal weights (Genest & Zidek 1986), since the
        steps are not independent.

        Args:
            steps: As ``(region, action)``, at least one.
            task_type: Type of the task; None for any.

        Raises:
            InvalidInputError: There is no step.
            NotFoundError: Unknown region or action.
        """
        if not steps:
            msg = "give at least one step, as (region, action)"
            raise InvalidInputError(msg)
        task = task_type or ANY_TASK
        opinions: list[float] = []
        for region, action in steps:
            chances = self._region_counts.chances(self._get_key(region))
            opinions.append(log_odds(chances.success(self._require_action(action), task)))
            opinions.append(log_odds(chances.quality(task)))
        return shift_log_odds(0.5, sum(opinions) / len(opinions))

    def best_action(self, region: str, task_type: str | None = None) -> list[ActionScore]:
        """Return the actions in a region, best first.

        They are ordered by mean reward, as ``P(success | region, action)`` [CVX RFC-013]: what was
        tried once is drawn towards what is known of the action elsewhere, as its interval shows.
        Value iteration, and with it :meth:`strategy_for`, also counts where an action leads, so its
        first action may be another one.

        Args:
            region: Id of its hub.
            task_type: Only episodes with this type of task count fully; others are the prior; None
                counts all fully.

        Raises:
            NotFoundError: Unknown region.
        """
        chances = self._region_counts.chances(self._get_key(region))
        scores = score_actions(chances, task_type or ANY_TASK)
        return sorted(scores, key=lambda score: (-score.success, -score.share))

    def region_quality(self, region: str, task_type: str | None = None) -> float:
        """Return P(success) of the turns and episodes in a region, in (0, 1).

        ``task_type`` None counts all tasks.

        Raises:
            NotFoundError: Unknown region.
        """
        return self._region_counts.chances(self._get_key(region)).quality(task_type or ANY_TASK)

    def value_iteration(
        self, task_type: str | None = None, *, discount: float | None = None
    ) -> RegionValues:
        """Return the value of each region, and the best action there.

        Args:
            task_type: Only steps of this type of task; None for all.
            discount: γ in (0, 1); None for that of the settings.

        Raises:
            InvalidInputError: The discount is out of range.
        """
        solution = self._solve(task_type, self._settings.discount if discount is None else discount)
        names_by_key = self.read_hubs().names
        return RegionValues(
            {
                names_by_key[key]: value
                for key, value in solution.values.items()
                if key in names_by_key
            },
            {
                names_by_key[key]: action
                for key, action in solution.actions.items()
                if key in names_by_key
            },
            solution.rounds,
        )

    def strategy_for(
        self, region: str, task_type: str | None = None, *, most: int = 8
    ) -> list[StrategyStep]:
        """Return the strategy of value iteration from a region on, along the likeliest regions.

        The strategy ends where the episode mostly does, where nothing is known, or before a region
        occurs twice.

        Args:
            region: Id of the hub of the first region.
            task_type: Type of the task; if it is unknown in the region, or None, the strategy for
                all tasks.
            most: Longest strategy.

        Raises:
            NotFoundError: Unknown region.
        """
        key: int | None = self._get_key(region)
        solution = self._solve(task_type, self._settings.discount)
        if key not in solution.actions and task_type:
            task_type = None
            solution = self._solve(None, self._settings.discount)
        names_by_key = self.read_hubs().names
        stages: list[StrategyStep] = []
        visited: set[int] = set()
        while key in solution.actions and key not in visited and len(stages) < most:
            assert key is not None  # noqa: S101
            visited.add(key)
            action = solution.actions[key]
            next_counts = self._count_next(key, action, task_type)
            next_region = max(next_counts, key=lambda target: next_counts[target])
            probability = next_counts[next_region] / (sum(next_counts.values()) or 1.0)
            success = self._region_counts.chances(key).success(action, task_type or ANY_TASK)
            name = None if next_region is None else names_by_key[next_region]
            stages.append(StrategyStep(names_by_key[key], action, success, name, probability))
            key = next_region
        return stages

    def find_states(
        self, vector: Vector, most: int, task_type: str | None = None, *, same: str = ""
    ) -> list[PastState]:
        """Return the states of won episodes most similar to a unit vector, ``[d]``, nearest first.

        Args:
            vector: What an agent sees now.
            most: Number of states.
            task_type: Type of the agent's task; None for all.
            same: Id of a state with the very text, which comes first.
        """
        hubs, won = self.read_hubs(), self._region_counts.won_regions
        if not hubs.keys:
            return []
        near = stretch_cosine(hubs.compare(vector[None])[0], self._store.stretch)
        equal = np.array([name == same for name in hubs.ids], dtype=float)
        order = np.argsort(-near - equal, kind="stable").tolist()
        best = [index for index in order if hubs.keys[index] in won][:most]
        documents = self._store.catalog.documents(
            [hubs.ids[index] for index in best],
            namespace=self._store.walk.get_clock(self.namespace).key,
        )
        return [
            PastState(
                name,
                documents[name].content,
                float(near[index]),
                tuple(self.strategy_for(name, task_type)),
            )
            for index in best
            if (name := hubs.ids[index]) in documents
        ]

    def _count_next(
        self, region: int, action: str, task_type: str | None
    ) -> dict[int | None, float]:
        """Return how often an action led to each region, by key; None is the end of the episode.

        ``task_type`` None counts all tasks. Transitions to a region whose hub no longer exists are
        left out.
        """
        steps = self._list_steps(region, action, task_type)
        current_keys = set(self.read_hubs().keys)
        next_counts: dict[int | None, float] = {None: sum(step.ends for step in steps)}
        for step in steps:
            if step.next in current_keys:
                next_counts[step.next] = next_counts.get(step.next, 0.0) + step.trials - step.ends
        return next_counts

    def _solve(self, task_type: str | None, discount: float) -> ValueFunction:
        if not 0.0 < (discount := require_number("discount", discount, 0.0, 1.0)) < 1.0:
            msg = f"discount must be between 0 and 1, not {discount!r}"
            raise InvalidInputError(msg)
        task, counts = task_type or ANY_TASK, self._region_counts
        if (known := counts.solutions.get((task, discount))) is not None:
            return known
        current_keys = set(self.read_hubs().keys)
        steps = [
            step if step.next in current_keys else step._replace(next=0)
            for step in counts.steps
            if step.task == task and step.action and step.region in current_keys
        ]
        chances = {region: counts.chances(region) for region in {step.region for step in steps}}
        success = {
            (region, action): chances[region].success(action, task)
            for region, action in {(step.region, step.action) for step in steps}
        }
        counts.solutions[task, discount] = run_value_iteration(steps, success, discount)
        return counts.solutions[task, discount]

    @property
    def _region_counts(self) -> RegionCounts:
        clock = self._store.walk.get_clock(self.namespace)
        version = clock.key, clock.learned, clock.hubs  # a forgotten namespace gets a new key
        counts = self._cached
        if counts is None or counts.version != version:
            steps = self._store.regions.get_all_transitions(self.namespace, self.level)
            counts = RegionCounts(version, steps, self.level, self._settings.prior_trials)
            self._cached = counts
        return counts

    def _list_steps(self, region: int, action: str, task_type: str | None) -> list[TransitionCount]:
        task = task_type or ANY_TASK
        steps = self._region_counts.by_region.get(region, ())
        return [step for step in steps if step.action == action and step.task == task]

    def _get_key(self, region: str) -> int:
        hubs = self.read_hubs()
        try:
            return hubs.keys[hubs.ids.index(region)]
        except ValueError:
            msg = (
                f"there is no region {region!r:.250} on level {hubs.level}: regions are named by "
                "the ids of their hubs, see memory.regions.assign and memory.regions.assignments"
            )
            raise NotFoundError(msg) from None

    def _require_action(self, action: str) -> str:
        if action not in self._region_counts.actions:
            known_actions = ", ".join(self.actions) or "none"
            msg = f"no step {action!r:.250} was ever taken; known actions are: {known_actions:.500}"
            raise NotFoundError(msg)
        return action
