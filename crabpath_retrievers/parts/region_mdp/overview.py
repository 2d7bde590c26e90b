"""Summary and map of the regions of a namespace: visits, success, actions and next regions."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.changes import TransitionCount
from crabpath_retrievers.core.language import is_frequent
from crabpath_retrievers.core.text import fold_plural, split_words
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.parts.operation.maintenance import HealthQueries
from crabpath_retrievers.parts.region_mdp.mdp import ActionScore, find_whole, score_actions
from crabpath_retrievers.parts.region_mdp.models import RegionLevel, RegionModels
from crabpath_retrievers.regions import ANY_TASK, Hubs, SuccessModel


class NextRegion(NamedTuple):
    """A region that others lead to: id of its hub, and its share of their steps in [0, 1]."""

    region: str
    share: float


class RegionSummary(NamedTuple):
    """Summary of one region.

    Attributes:
        region, title: Id and title of its hub.
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


class PlacedRegion(NamedTuple):
    """A region on the map.

    Attributes:
        region, title: Id and title of its hub.
        size: Number of chunks in it; an estimate in a corpus of more than 10,000.
        x, y: Its place: the first two principal components of the hubs' vectors.
        arrivals: Weighted number of turns and episodes of the namespace in it.
        quality: P(success) of these, in (0, 1); None where nothing was done.
        actions: Success by action, best first.
        next_regions: Next regions, likeliest first; the shares include steps that ended there.
        words: At most three words that tell it from other regions, the most telling first.
    """

    region: str
    title: str
    size: int
    x: float
    y: float
    arrivals: float
    quality: float | None
    actions: tuple[ActionScore, ...]
    next_regions: tuple[NextRegion, ...]
    words: tuple[str, ...]


class RegionMap(NamedTuple):
    """All regions of one level as a namespace knows them.

    Attributes:
        level: The level.
        levels: All levels in which steps are counted, finest first.
        regions: Its regions, in the order of their hubs.
    """

    level: int
    levels: tuple[int, ...]
    regions: tuple[PlacedRegion, ...]


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
    models: RegionModels, namespace: str, level: RegionLevel, task_type: str | None, most: int
) -> RegionOverview | None:
    """Summarise the most visited regions; None if nothing was learned.

    Args:
        models: Reads the store.
        namespace: The namespace.
        level: A level with transition counts; None for the finest; or the states of agents.
        task_type: Only this type of task counts fully; None for all.
        most: Number of regions.

    Raises:
        NotFoundError: The level has no hub or no counts, or the type of task is not known.
    """
    mdp = models.transitions(namespace, level)
    hubs = mdp.read_hubs()
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
        hubs, models.regions.levels(), len(order), rows, _score_all(steps, task, models, hubs.level)
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
        if step.region and not step.action and step.task == task
    }


def _list_next_regions(
    steps: Sequence[TransitionCount], task: str, hubs: Hubs
) -> dict[int, list[NextRegion]]:
    """List the regions to which steps of a type of task led, by key, the likeliest first.

    ``task`` is empty for all types. Regions without a hub are left out.
    """
    names = hubs.names
    totals: defaultdict[int, float] = defaultdict(float)
    next_counts: defaultdict[int, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for step in steps:
        if step.region and step.action and step.task == task:
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
    steps: Sequence[TransitionCount], task: str, models: RegionModels, level: int
) -> list[ActionScore]:
    chances = SuccessModel((find_whole(level),), steps, models.settings.prior_trials)
    return sorted(score_actions(chances, task), key=lambda score: -score.trials)


_MOST_SAMPLED = 10_000  # chunks whose regions are counted
_MOST_READ = 2_000  # of these, chunks whose words are read
_BEGINNING = 300  # characters that are read of a text
_WORDS = 3  # of a region


def draw_map(models: RegionModels, namespace: str, level: int | None) -> RegionMap:
    """Place the regions of a level on a map, with what a namespace knows of them.

    Args:
        models: Reads the store.
        namespace: The namespace.
        level: A level with transition counts; None for the finest.

    Raises:
        NotFoundError: The level has no hub or no counts.
        InvalidInputError: The level is no whole number of at least 1.
    """
    mdp = models.transitions(namespace, level)
    hubs = models.hubs(mdp.level)
    steps = models.store.regions.get_all_transitions(namespace, hubs.level)
    arrivals = _count_arrivals(steps, ANY_TASK)
    next_regions = _list_next_regions(steps, ANY_TASK, hubs)
    sizes, words = _read_regions(models, hubs)
    visited = set(mdp.visited_regions)
    placed = [
        PlacedRegion(
            region,
            title,
            sizes.get(key, 0),
            x,
            y,
            arrivals.get(key, 0.0),
            mdp.region_quality(region) if region in visited else None,
            tuple(mdp.best_action(region)) if region in visited else (),
            tuple(next_regions.get(key, ())),
            words.get(key, ()),
        )
        for key, region, title, (x, y) in zip(
            hubs.keys, hubs.ids, hubs.titles, project_hubs(hubs).tolist(), strict=True
        )
    ]
    return RegionMap(hubs.level, models.regions.levels(), tuple(placed))


def _read_regions(
    models: RegionModels, hubs: Hubs
) -> tuple[dict[int, int], dict[int, tuple[str, ...]]]:
    """Estimate the number of chunks of each region, and find its words, by key of its hub.

    In a large corpus both are from a sample.
    """
    health = HealthQueries(models.store)
    found = models.store.regions.get_beginnings(health.sample(_MOST_SAMPLED), _BEGINNING)
    if not found:
        return {}, {}
    total, _ = health.corpus()
    scale = max(1.0, total / len(found))
    nearest = hubs.nearest(np.stack([vector for vector, _, _ in found]))
    step = -(-len(found) // _MOST_READ)
    texts = [f"{title} {text}" for _, title, text in found[::step]]
    sizes = {key: round(count * scale) for key, count in Counter(nearest).items()}
    return sizes, find_telling_words(texts, nearest[::step])


def find_telling_words(texts: Sequence[str], groups: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Find the words that tell each group of texts from the others, by tf-idf of groups.

    A word weighs the number of texts of the group that have it, times the nats by which few groups
    have it. Words of all groups, of one letter and frequent ones of a language tell nothing. Words
    are written as most texts write them.
    """
    texts_with: defaultdict[int, Counter[str]] = defaultdict(Counter)
    forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for text, group in zip(texts, groups, strict=True):
        surfaces = {
            fold_plural(word.token): text[word.start : word.end]
            for word in split_words(text)
            if word.end - word.start > 1 and word.token.isalpha() and not is_frequent(word.token)
        }
        texts_with[group].update(surfaces.keys())
        for token, surface in surfaces.items():
            forms[token][surface] += 1
    groups_with = Counter(token for tokens in texts_with.values() for token in tokens)
    telling = {}
    for group, counts in texts_with.items():
        nats = {t: n * math.log(len(texts_with) / groups_with[t]) for t, n in counts.items()}
        best = sorted(filter(nats.get, nats), key=lambda token: (-nats[token], token))[:_WORDS]
        telling[group] = tuple(forms[token].most_common(1)[0][0] for token in best)
    return telling


_AXES = 2


def project_hubs(hubs: Hubs) -> NDArray[np.float64]:
    """Project hubs on their first two principal components, shape ``[hubs, 2]``.

    The largest loading of each component is positive, so that a plot does not flip between runs.
    """
    vectors = hubs.vectors.astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:_AXES]
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    scores = centred @ (components * signs[:, None]).T
    projected: NDArray[np.float64] = np.pad(scores, ((0, 0), (0, _AXES - scores.shape[1])))
    return projected
