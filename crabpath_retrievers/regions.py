"""Regions of the embedding space, and how likely actions succeed in them [CVX RFC-013].

A region has the nodes nearest to one hub. The hubs of a level follow from hashes of their ids. They
are read from the graph store and compared exactly, so that regions are the same with every vector
store and in every order of arrival: vectors as stored, in half precision, products in double
precision, where a product of two such unit vectors needs 49 of 53 bits. Nothing is rounded, so
neither the batch nor the machine changes which hub is nearest.

P(success | region, action): Beta posteriors that back off from fine to coarse regions.
"""

import math
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes import RegionKey, TransitionCount
from crabpath_retrievers.core.query import require_count
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import EmbeddingMismatchError, NotFoundError
from crabpath_retrievers.routing import ActionStatistics
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.read.walk import Clock

WHOLE_CORPUS: RegionKey = (0, 0)
_MAX_CACHED = 65_536  # nodes with cached regions: 10 MiB


@dataclass(frozen=True)
class Hubs:
    """The hubs of one level.

    Attributes:
        level: The level: at least 1, or -1 for the states of agents.
        keys, ids, titles: Of the hubs, in the order of their keys.
        vectors: Shape ``[hubs, d]``, unit length, as stored.
    """

    level: int
    keys: tuple[int, ...]
    ids: tuple[str, ...]
    titles: tuple[str, ...]
    vectors: NDArray[np.float64]

    @cached_property
    def names(self) -> dict[int, str]:
        """Ids by key."""
        return dict(zip(self.keys, self.ids, strict=True))

    def nearest(self, vectors: NDArray[np.floating[Any]]) -> list[int]:
        """Return keys of the hubs nearest to unit vectors, shape ``[n, d]``; ties: the oldest."""
        best = self.compare(vectors).argmax(axis=1)
        return [self.keys[index] for index in best.tolist()]

    def compare(self, vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the cosines of unit vectors, shape ``[n, d]``, with the hubs, ``[n, hubs]``.

        Raises:
            EmbeddingMismatchError: The vectors have another dimension.
        """
        if vectors.shape[1] != self.vectors.shape[1]:
            msg = (
                f"a vector has {vectors.shape[1]} dimensions, this memory {self.vectors.shape[1]}: "
                "embed it with the embedder of the memory"
            )
            raise EmbeddingMismatchError(msg)
        stored: NDArray[np.float64] = vectors.astype(np.float16).astype(np.float64)
        return stored @ self.vectors.T


@dataclass(slots=True)
class _HubCache:
    """Hubs and regions of nodes in memory, valid while the hubs do not change.

    Attributes:
        version: Version of the hubs when it was created; what was read since is at least as new.
        levels: Those with transition counts, finest first.
        nodes: By level and key of the node: hash of its vector, key of its hub.
    """

    version: int
    known: Collection[int] = ()
    levels: tuple[int, ...] = ()
    hubs: dict[int, Hubs] = field(default_factory=dict)
    nodes: dict[RegionKey, tuple[int, int]] = field(default_factory=dict)


class RegionIndex:
    """Assigns vectors and nodes to regions. Safe to use from several threads.

    ``version`` is that of the hubs where it has been read already (``Clock.hubs``), and ``read``
    the reader of the operation that asks; None reads the version, and from the store.
    """

    def __init__(self, store: GraphStore, settings: RegionSettings) -> None:
        """Keep the store with the hubs."""
        self._store, self._settings = store, settings
        self._cache = _HubCache(-1)
        self._lock = threading.Lock()

    def levels(self, version: int | None = None, read: Reader | None = None) -> tuple[int, ...]:
        """Return the levels with transition counts, finest first; none in a very small corpus.

        These are from the first one with at most ``most`` hubs to the last one with at least two.
        ``version`` is that of the hubs; None reads it. ``read`` does the reading; None takes the
        store.
        """
        return self._read_cache(read or self._store, version).levels

    def hubs(self, level: int, version: int | None = None, read: Reader | None = None) -> Hubs:
        """Return the hubs of a level.

        Raises:
            InvalidInputError: The level is no whole number of at least 1.
            NotFoundError: The level has no hub.
        """
        level = require_count("level", level)
        read = read or self._store
        cache = self._read_cache(read, version)
        if (nearest_keys := self._load_hubs(read, cache, level)) is None:
            levels = ", ".join(map(str, cache.levels))
            hint = f"use one of {levels}" if levels else "this memory is too small for any"
            msg = f"level {level} has no hub: {hint}"
            raise NotFoundError(msg)
        return nearest_keys

    def places(
        self, vector: Vector, version: int | None = None, read: Reader | None = None
    ) -> tuple[RegionKey, ...]:
        """Return the regions of a unit vector, shape ``[d]``, whole corpus first."""
        read = read or self._store
        cache, row = self._read_cache(read, version), np.asarray(vector)[None]
        nearest_keys = [
            (level, hubs.nearest(row)[0])
            for level in cache.levels
            if (hubs := self._load_hubs(read, cache, level))
        ]
        return (WHOLE_CORPUS, *reversed(nearest_keys))

    def locate(
        self, read: Reader, vector: Vector, nodes: Mapping[int, Vector], version: int
    ) -> tuple[Sequence[RegionKey], dict[int, dict[int, int]]]:
        """Return the regions of a query, whole corpus first, and those of nodes, by key and level.

        ``vector`` and ``nodes`` are unit vectors, shape ``[d]``; ``version`` is that of the hubs.
        """
        places = self.places(np.asarray(vector, dtype=np.float32), version, read)
        found: dict[int, dict[int, int]] = {key: {} for key in nodes}
        for level, _ in places[1:]:
            of_level = self.of_nodes(list(nodes), list(nodes.values()), level, version, read)
            for key, region in of_level.items():
                found[key][level] = region
        return places, found

    def of_nodes(
        self,
        keys: Sequence[int],
        vectors: Sequence[Vector],
        level: int,
        version: int | None = None,
        read: Reader | None = None,
    ) -> dict[int, int]:
        """Return the region of each node at a level, by key; empty if the level has lost its hubs.

        The nodes are given by their keys and their unit vectors, each of shape ``[d]``.
        """
        read = read or self._store
        cache = self._read_cache(read, version)
        if not keys or (hubs := self._load_hubs(read, cache, level)) is None:
            return {}
        # The vector of a node changes with its text, without a new version of the hubs.
        marks = [hash(vector.tobytes()) for vector in vectors]
        cached = [cache.nodes.get((level, key)) for key in keys]
        nearest_keys = {
            key: entry[1]
            for key, mark, entry in zip(keys, marks, cached, strict=True)
            if entry is not None and entry[0] == mark
        }
        missing = [index for index, key in enumerate(keys) if key not in nearest_keys]
        if missing:
            nearest = hubs.nearest(np.stack([vectors[index] for index in missing]))
            nearest_keys |= {keys[index]: hub for index, hub in zip(missing, nearest, strict=True)}
            if len(cache.nodes) + len(missing) > _MAX_CACHED:
                cache.nodes.clear()
            for index in missing:
                cache.nodes[level, keys[index]] = (marks[index], nearest_keys[keys[index]])
        return nearest_keys

    def _read_cache(self, read: Reader, version: int | None) -> _HubCache:
        """Return the cache of the current hubs, or of those after ``version``."""
        latest = read.regions.version() if version is None else version
        if self._cache.version < latest:
            # A replica may be older than the version that its answers would be remembered for.
            with self._lock:
                if self._cache.version < latest:
                    sizes, most = read.primary.regions.sizes(), self._settings.max_hubs
                    levels = tuple(level for level, n in sizes.items() if 1 < n <= most)
                    self._cache = _HubCache(latest, sizes.keys(), levels)
        return self._cache

    def _load_hubs(self, read: Reader, cache: _HubCache, level: int) -> Hubs | None:
        """Return the hubs of a level; None if it has none or has lost them in the meantime."""
        if level in cache.known and level not in cache.hubs:
            rows = read.primary.regions.hubs(level)
            if not rows:
                return None
            keys, ids, titles, vectors = zip(*rows, strict=True)
            stored = np.stack(vectors).astype(np.float64)
            cache.hubs[level] = Hubs(level, keys, ids, titles, stored)
        return cache.hubs.get(level)


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
        """Sum the counts in a chain of regions, coarsest first; other regions are ignored.

        ``strength`` is that of the prior, in trials.
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

        An empty action or task is any. ``depth`` is the place in the chain of regions; None is the
        finest.
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
        """Return the mean of a Beta posterior after ``trials``, of which ``wins`` were won."""
        # Undo leaves rounding errors: wins may not exceed trials.
        return (min(wins, trials) + self._strength * prior) / (trials + self._strength)


def log_odds(probability: float) -> float:
    """Return the log-odds of a probability, which is bounded away from 0 and 1."""
    bounded = min(1.0 - _MIN_PROBABILITY, max(_MIN_PROBABILITY, probability))
    return math.log(bounded / (1.0 - bounded))


def shift_log_odds(probability: float, shift: float) -> float:
    """Return a probability shifted in log-odds."""
    return 1.0 / (1.0 + math.exp(-(log_odds(probability) + shift)))


def list_tried_actions(
    read: Reader,
    regions: RegionIndex,
    settings: RegionSettings,
    vector: Vector,
    clock: Clock,
    task: str | None,
) -> list[ActionStatistics]:
    """Return the actions with enough trials, each in the finest region of a query that has them.

    One product with the hubs, one database query; empty if the corpus has no regions.
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
