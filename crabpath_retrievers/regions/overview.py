"""The regions of a namespace at a glance: what came by, how it went, where it led."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.changes.regions import Step
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.regions.action_scores import ActionScore, action_scores
from crabpath_retrievers.regions.chances import ANY_TASK, Chances
from crabpath_retrievers.regions.hubs import EVERYWHERE, Hubs
from crabpath_retrievers.regions.models import Models


class Lead(NamedTuple):
    """Where the steps of a region lead: id of a hub, and their share in [0, 1]."""

    region: str
    share: float


class RegionRow(NamedTuple):
    """One region.

    Attributes:
        region, title: Of its hub.
        came: Turns and episodes that came by, as far as each counted.
        quality: P(success) of these, in (0, 1).
        actions: Best first.
        leads: The regions that steps led to, likeliest first; those that ended there count too.
    """

    region: str
    title: str
    came: float
    quality: float
    actions: Sequence[ActionScore]
    leads: Sequence[Lead]


@dataclass(frozen=True, slots=True)
class Overview:
    """What a namespace knows of one level.

    Attributes:
        hubs: Of the level.
        levels: All levels in which steps are counted, finest first.
        visited: In how many regions a step was taken.
        rows: The regions that most came by.
        actions: Every action in all regions together, most tried first.
    """

    hubs: Hubs
    levels: tuple[int, ...]
    visited: int
    rows: Sequence[RegionRow]
    actions: Sequence[ActionScore]


def overview(
    models: Models, namespace: str, level: int | None, task_type: str | None, most: int
) -> Overview | None:
    """The regions that most turns came by; None where nothing was learned.

    Args:
        models: Reads the store.
        namespace: Whose experience.
        level: One that is counted; None for the finest.
        task_type: Only this type of task counts fully; None for all.
        most: Regions to describe.

    Raises:
        NotFoundError: The level has no hub or no steps, or the type of task is not known.
    """
    mdp = models.transitions(namespace, level)
    hubs = models.hubs(level)
    steps = models.store.regions.all_steps(namespace, hubs.level)
    if not mdp.visited:
        return None
    task = _known(task_type, steps)
    came, leads = _came(steps, task), _leads(steps, task, hubs)
    titles = dict(zip(hubs.ids, hubs.titles, strict=True))
    keys = dict(zip(hubs.ids, hubs.keys, strict=True))
    order = sorted(mdp.visited, key=lambda region: -came.get(keys[region], 0.0))
    if task != ANY_TASK:
        order = [region for region in order if came.get(keys[region])]
    rows = [
        RegionRow(
            region,
            titles[region],
            came.get(keys[region], 0.0),
            mdp.region_quality(region, task),
            mdp.best_action(region, task),
            leads.get(keys[region], ()),
        )
        for region in order[:most]
    ]
    return Overview(hubs, models.regions.levels(), len(order), rows, _actions(steps, task, models))


def _known(task_type: str | None, steps: Sequence[Step]) -> str:
    tasks = {step.task for step in steps}
    if task_type is None or task_type in tasks:
        return task_type or ANY_TASK
    known = ", ".join(sorted(task for task in tasks if task)) or "none"
    msg = f"nothing was learned of tasks of type {task_type!r:.250}: known are {known:.500}"
    raise NotFoundError(msg)


def _came(steps: Sequence[Step], task: str) -> dict[int, float]:
    return {
        step.region: step.trials
        for step in steps
        if step.level and not step.action and step.task == task
    }


def _leads(steps: Sequence[Step], task: str, hubs: Hubs) -> dict[int, list[Lead]]:
    """By key of the region."""
    alive = hubs.names
    total: defaultdict[int, float] = defaultdict(float)
    led: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for step in steps:
        if step.level and step.action and step.task == task:
            total[step.region] += step.trials
            if step.next in alive:
                led[step.region][step.next] += step.trials
    return {
        region: [
            Lead(alive[key], trials / total[region])
            for key, trials in sorted(ways.items(), key=lambda way: -way[1])
        ]
        for region, ways in led.items()
    }


def _actions(steps: Sequence[Step], task: str, models: Models) -> list[ActionScore]:
    chances = Chances((EVERYWHERE,), steps, models.settings.prior_trials)
    return sorted(action_scores(chances, task), key=lambda score: -score.trials)
