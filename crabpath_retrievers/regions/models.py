"""Region models read from a graph store alone, without vector index, embedder or memory.

Advice of the region MDP for one query.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes.history import RegionKey, TransitionCount
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.regions.hubs import Hubs, Regions
from crabpath_retrievers.regions.mdp import RegionModel
from crabpath_retrievers.regions.success import ANY_TASK, SuccessModel
from crabpath_retrievers.routing.policy import ActionStatistics
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.walk import Clock

ModelSources = tuple[
    Callable[[], Hubs],
    Callable[[], Hashable],
    Callable[[], Sequence[TransitionCount]],
    RegionSettings,
]
"""Readers of the hubs of a level, of the version of the counts and of the counts; settings."""


@dataclass(frozen=True, slots=True)
class RegionModels:
    """Reads regions and the transition counts of a namespace."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings

    def level(self, level: int | None) -> int:
        """Return the level as given; for None the finest with transition counts, else the first."""
        return next(iter(self.regions.levels()), 1) if level is None else level

    def assignments(self, level: int | None) -> dict[str, str]:
        """Return the region of every document chunk: id of its hub, by id.

        The corpus is read in blocks.

        Raises:
            NotFoundError: The level has no hub.
        """
        hubs = self.hubs(level)
        hub_by_node: dict[str, str] = {}
        for block in self.store.regions.iterate_nodes():
            nearest = hubs.nearest(np.stack([node.vector for node in block]))
            hub_by_node |= {
                node.id: hubs.names[key] for node, key in zip(block, nearest, strict=True)
            }
        return hub_by_node

    def hubs(self, level: int | None) -> Hubs:
        """The hubs of a level.

        Raises:
            NotFoundError: The level has no hub.
        """
        return self.regions.hubs(self.level(level))

    def transitions(self, namespace: str, level: int | None) -> RegionModel:
        """Return the region model of a namespace; raises as :meth:`sources`."""
        return RegionModel(*self.sources(namespace, level))

    def sources(self, namespace: str, level: int | None) -> ModelSources:
        """Return the readers that a region model is built from.

        Raises:
            NotFoundError: The level has no hub, or transitions are not counted on it.
            InvalidInputError: The level is no whole number of at least 1.
        """
        levels = self.regions.levels()
        chosen = self.hubs(level).level
        if chosen not in levels:
            available = ", ".join(map(str, levels)) or "none"
            msg = f"steps are not counted on level {chosen}: counted levels are {available}"
            raise NotFoundError(msg)

        def version() -> tuple[int, ...]:
            clock = self.store.walk.get_clock(namespace)  # a forgotten namespace gets a new key
            return clock.key, clock.learned, clock.hubs

        return (
            lambda: self.regions.hubs(chosen),
            version,
            lambda: self.store.regions.get_all_transitions(namespace, chosen),
            self.settings,
        )


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
