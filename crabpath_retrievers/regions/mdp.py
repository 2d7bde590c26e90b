"""The Markov decision process over regions: which kind of step succeeds where (document 004 A)."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from crabpath_retrievers.changes.regions import Step
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.regions.action_scores import ActionScore, action_scores
from crabpath_retrievers.regions.chances import ANY_TASK, log_odds, moved
from crabpath_retrievers.regions.counted import Counted
from crabpath_retrievers.regions.hubs import Hubs
from crabpath_retrievers.regions.planning import Plan, value_iteration


class Stage(NamedTuple):
    """One step of a strategy: in this region take this action; it mostly leads to the next one.

    Attributes:
        success: P(success | region, action).
        next_region: Where it leads, if the episode goes on; None where it mostly ends.
        probability: P(next_region | region, action), or of the end.
    """

    region: str
    action: str
    success: float
    next_region: str | None
    probability: float


class Values(NamedTuple):
    """Value and best action of every region that a step was taken in, by id of its hub."""

    values: Mapping[str, float]
    actions: Mapping[str, str]
    rounds: int


class RegionModel:
    """States are regions, actions are types of steps, the reward is the outcome of the episode.

    It is read from the counts that a namespace keeps, and is always up to date with them.
    Regions are named by the ids of their hubs.
    """

    def __init__(
        self,
        hubs: Callable[[], Hubs],
        version: Callable[[], Hashable],
        steps: Callable[[], Sequence[Step]],
        settings: RegionSettings,
    ) -> None:
        """Use ``RegionMDP``, or ``Models`` where there is a graph store alone.

        Args:
            hubs: Reads the hubs of the level.
            version: Changes whenever the counts may have.
            steps: Reads the counts of the level, and of all levels together.
            settings: Strength of the prior, discount.
        """
        self._hubs, self._version, self._steps = hubs, version, steps
        self._settings = settings
        self._known: Counted | None = None

    @property
    def level(self) -> int:
        """The level of the regions."""
        return self._hubs().level

    @property
    def regions(self) -> tuple[str, ...]:
        """Ids of all hubs of the level."""
        return self._hubs().ids

    @property
    def visited(self) -> tuple[str, ...]:
        """Ids of the regions in which a step was taken."""
        keys = self._counted.by_region
        return tuple(name for key, name in self._hubs().names.items() if key in keys)

    @property
    def actions(self) -> tuple[str, ...]:
        """Types of actions that were ever taken, sorted."""
        return tuple(sorted(self._counted.actions))

    def transition_probability(
        self, region: str, action: str, next_region: str | None, task_type: str | None = None
    ) -> float:
        """P(next region | region, action), in [0, 1]; ``None`` is the end of the episode.

        The share among the times that the action was taken there and it is known where it led; 0
        where it never was. A step that ended its episode counts for the end alone.

        Raises:
            NotFoundError: Unknown region or action.
        """
        ways = self._ways(self._key(region), self._action(action), task_type)
        led = None if next_region is None else self._key(next_region)
        total = sum(ways.values())
        return ways.get(led, 0.0) / total if total else 0.0

    def success_probability(self, region: str, action: str, task_type: str | None = None) -> float:
        """P(success | region, action), in (0, 1): a Beta posterior that backs off.

        Raises:
            NotFoundError: Unknown region or action.
        """
        chances = self._counted.chances(self._key(region))
        return chances.success(self._action(action), task_type or ANY_TASK)

    def episode_success(
        self, steps: Sequence[tuple[str, str]], task_type: str | None = None
    ) -> float:
        """How likely an episode succeeds that began with these steps, in (0, 1).

        The mean over its steps, in log-odds, of P(success | region, action) and P(success |
        region): each step is one opinion, none of them independent of the others.

        Args:
            steps: As ``(region, action)``, at least one.
            task_type: Type of the task.

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
            chances = self._counted.chances(self._key(region))
            opinions.append(log_odds(chances.success(self._action(action), task)))
            opinions.append(log_odds(chances.quality(task)))
        return moved(0.5, sum(opinions) / len(opinions))

    def best_action(self, region: str, task_type: str | None = None) -> list[ActionScore]:
        """The actions that may be taken in a region, best first.

        They are ordered by how often successful episodes take them there,
        ``P(action | region) P(success | region, action)``: an action that succeeded the only time
        it was tried does not go before one that mostly succeeds.

        Args:
            region: Id of its hub.
            task_type: Only episodes with this type of task count fully; others are the prior.

        Raises:
            NotFoundError: Unknown region.
        """
        chances = self._counted.chances(self._key(region))
        scores = action_scores(chances, task_type or ANY_TASK)
        return sorted(scores, key=lambda score: -score.success * score.share)

    def region_quality(self, region: str, task_type: str | None = None) -> float:
        """P(success) of the turns and episodes that come to a region, in (0, 1).

        Raises:
            NotFoundError: Unknown region.
        """
        return self._counted.chances(self._key(region)).quality(task_type or ANY_TASK)

    def value_iteration(
        self, task_type: str | None = None, *, discount: float | None = None
    ) -> Values:
        """What each region is worth, and the best action there.

        Args:
            task_type: Only steps of this type of task; None for all.
            discount: γ in (0, 1); None for that of the settings.

        Raises:
            InvalidInputError: The discount is none.
        """
        plan = self._plan(task_type, self._settings.discount if discount is None else discount)
        named = self._hubs().names
        return Values(
            {named[key]: value for key, value in plan.values.items() if key in named},
            {named[key]: action for key, action in plan.actions.items() if key in named},
            plan.rounds,
        )

    def strategy_for(
        self, region: str, task_type: str | None = None, *, most: int = 8
    ) -> list[Stage]:
        """The way from a region that value iteration recommends, following the likeliest regions.

        It ends where the episode mostly does, where nothing is known, or where it would go round.

        Args:
            region: Id of the hub of the region where it begins.
            task_type: Type of the task; where it was never met in the region, the strategy is that
                for all tasks.
            most: Longest strategy.

        Raises:
            NotFoundError: Unknown region.
        """
        key: int | None = self._key(region)
        plan = self._plan(task_type, self._settings.discount)
        if key not in plan.actions and task_type:
            task_type = None
            plan = self._plan(None, self._settings.discount)
        named = self._hubs().names
        stages: list[Stage] = []
        passed: set[int] = set()
        while key in plan.actions and key not in passed and len(stages) < most:
            assert key is not None  # noqa: S101
            passed.add(key)
            action = plan.actions[key]
            ways = self._ways(key, action, task_type)
            led = max(ways, key=lambda way: ways[way])
            probability = ways[led] / (sum(ways.values()) or 1.0)
            success = self._counted.chances(key).success(action, task_type or ANY_TASK)
            name = None if led is None else named[led]
            stages.append(Stage(named[key], action, success, name, probability))
            key = led
        return stages

    def _ways(self, region: int, action: str, task_type: str | None) -> dict[int | None, float]:
        """How often an action led where, by key of the region; None is the end of the episode.

        Times that led to a region whose hub is gone are left out.
        """
        taken, alive = self._taken(region, action, task_type), set(self._hubs().keys)
        ways: dict[int | None, float] = {None: sum(step.ends for step in taken)}
        for step in taken:
            if step.next in alive:
                ways[step.next] = ways.get(step.next, 0.0) + step.trials - step.ends
        return ways

    def _plan(self, task_type: str | None, discount: float) -> Plan:
        number = isinstance(discount, (int, float)) and not isinstance(discount, bool)
        if not number or not 0.0 < discount < 1.0:
            msg = f"discount must be between 0 and 1, not {discount!r}"
            raise InvalidInputError(msg)
        task, known = task_type or ANY_TASK, self._counted
        alive = set(self._hubs().keys)
        steps = [
            step if step.next in alive else step._replace(next=0)
            for step in known.steps
            if step.level and step.task == task and step.action and step.region in alive
        ]
        chances = {region: known.chances(region) for region in {step.region for step in steps}}
        success = {
            (region, action): chances[region].success(action, task)
            for region, action in {(step.region, step.action) for step in steps}
        }
        return value_iteration(steps, success, discount)

    @property
    def _counted(self) -> Counted:
        version, known = self._version(), self._known
        if known is None or known.version != version:
            known = Counted(version, self._steps(), self.level, self._settings.prior_trials)
            self._known = known
        return known

    def _taken(self, region: int, action: str, task_type: str | None) -> list[Step]:
        task = task_type or ANY_TASK
        steps = self._counted.by_region.get(region, ())
        return [step for step in steps if step.action == action and step.task == task]

    def _key(self, region: str) -> int:
        hubs = self._hubs()
        try:
            return hubs.keys[hubs.ids.index(region)]
        except ValueError:
            msg = (
                f"there is no region {region!r:.250} on level {hubs.level}: regions are named by "
                "the ids of their hubs, see assign_region and region_assignments"
            )
            raise NotFoundError(msg) from None

    def _action(self, action: str) -> str:
        if action not in self._counted.actions:
            known = ", ".join(self.actions) or "none"
            msg = f"no step {action!r:.250} was ever taken; known are: {known:.500}"
            raise NotFoundError(msg)
        return action
