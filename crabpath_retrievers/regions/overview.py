"""Summary of the regions of a namespace: visits, success, actions and next regions."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.regions.hubs import WHOLE_CORPUS, Hubs
from crabpath_retrievers.regions.models import RegionModels
from crabpath_retrievers.regions.success import ANY_TASK, ActionScore, SuccessModel, score_actions


class NextRegion(NamedTuple):
    """A region that others lead to: id of its hub, and its share of their steps in [0, 1]."""

    region: str
    share: float


class RegionSummary(NamedTuple):
    """Summary of one region.

    Attributes:
        region, title: Of its hub.
        arrivals: Weighted number of turns and episodes in it.
        quality: P(success) of these, in (0, 1).
        actions: Its actions, best first.
        next_regions: Next regions, likeliest first; the shares include steps that ended there.
    """

    region: str
    title: str
    arrivals: float
    quality: float
    actions: Sequence[ActionScore]
    next_regions: Sequence[NextRegion]


@dataclass(frozen=True, slots=True)
class RegionOverview:
    """Summary of the regions of one level.

    Attributes:
        hubs: The hubs of the level.
        levels: All levels in which transitions are counted, finest first.
        visited: Number of regions with a counted action.
        rows: The most visited regions.
        actions: Every action in all regions together, most tried first.
    """

    hubs: Hubs
    levels: tuple[int, ...]
    visited: int
    rows: Sequence[RegionSummary]
    actions: Sequence[ActionScore]


def summarise_regions(
    models: RegionModels, namespace: str, level: int | None, task_type: str | None, most: int
) -> RegionOverview | None:
    """Summarise the most visited regions; None if nothing was learned.

    Args:
        models: Reads the store.
        namespace: The namespace.
        level: A level with transition counts; None for the finest.
        task_type: Only this type of task counts fully; None for all.
        most: Number of regions.

    Raises:
        NotFoundError: The level has no hub or no counts, or the type of task is not known.
    """
    mdp = models.transitions(namespace, level)
    hubs = models.hubs(level)
    steps = models.store.regions.get_all_transitions(namespace, hubs.level)
    if not mdp.visited_regions:
        return None
    task = _validate_task(task_type, steps)
    arrivals, next_regions = _count_arrivals(steps, task), _list_next_regions(steps, task, hubs)
    titles = dict(zip(hubs.ids, hubs.titles, strict=True))
    keys = dict(zip(hubs.ids, hubs.keys, strict=True))
    order = sorted(mdp.visited_regions, key=lambda region: -arrivals.get(keys[region], 0.0))
    if task != ANY_TASK:
        order = [region for region in order if arrivals.get(keys[region])]
    rows = [
        RegionSummary(
            region,
            titles[region],
            arrivals.get(keys[region], 0.0),
            mdp.region_quality(region, task),
            mdp.best_action(region, task),
            next_regions.get(keys[region], ()),
        )
        for region in order[:most]
    ]
    return RegionOverview(
        hubs, models.regions.levels(), len(order), rows, _score_all(steps, task, models)
    )


def _validate_task(task_type: str | None, steps: Sequence[TransitionCount]) -> str:
    tasks = {step.task for step in steps}
    if task_type is None or task_type in tasks:
        return task_type or ANY_TASK
    known = ", ".join(sorted(task for task in tasks if task)) or "none"
    msg = f"nothing was learned from tasks of type {task_type!r:.250}: known are {known:.500}"
    raise NotFoundError(msg)


def _count_arrivals(steps: Sequence[TransitionCount], task: str) -> dict[int, float]:
    return {
        step.region: step.trials
        for step in steps
        if step.level and not step.action and step.task == task
    }


def _list_next_regions(
    steps: Sequence[TransitionCount], task: str, hubs: Hubs
) -> dict[int, list[NextRegion]]:
    """Return the next regions by key of the region."""
    names = hubs.names
    totals: defaultdict[int, float] = defaultdict(float)
    next_counts: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for step in steps:
        if step.level and step.action and step.task == task:
            totals[step.region] += step.trials
            if step.next in names:
                next_counts[step.region][step.next] += step.trials
    return {
        region: [
            NextRegion(names[key], trials / totals[region])
            for key, trials in sorted(counts.items(), key=lambda item: -item[1])
        ]
        for region, counts in next_counts.items()
    }


def _score_all(
    steps: Sequence[TransitionCount], task: str, models: RegionModels
) -> list[ActionScore]:
    chances = SuccessModel((WHOLE_CORPUS,), steps, models.settings.prior_trials)
    return sorted(score_actions(chances, task), key=lambda score: -score.trials)
