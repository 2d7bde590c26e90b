"""Region models read from a graph store alone, without vector index, embedder or memory.

Advice of the region MDP for one query.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes.history import STATES
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.regions.hubs import Hubs, Regions, StateHubs
from crabpath_retrievers.regions.mdp import RegionModel
from crabpath_retrievers.regions.success import ANY_TASK, SuccessModel
from crabpath_retrievers.routing.policy import ActionStatistics
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.read.walk import Clock

RegionLevel = int | Literal["states"] | None
"""A level of regions of documents; ``"states"``: what agents saw in their episodes."""


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

    def transitions(self, namespace: str, level: RegionLevel) -> RegionModel:
        """Return the region model of a namespace; raises as :meth:`counted_level`."""
        counted = self.counted_level(level)
        hubs = self.reader(namespace, counted)
        return RegionModel(self.store, hubs, self.settings, namespace, counted)

    def reader(self, namespace: str, level: int) -> Callable[[], Hubs]:
        """Return what reads the present hubs of a level; the states of agents are a namespace's."""
        if level == STATES:
            return StateHubs(self.store, namespace)
        return partial(self.regions.hubs, level)

    def counted_level(self, level: RegionLevel) -> int:
        """Return a level on which transitions are counted, as given; for None the finest.

        Raises:
            NotFoundError: The level has no hub, or transitions are not counted on it.
            InvalidInputError: The level is no whole number of at least 1.
        """
        if level == "states":
            return STATES
        levels, chosen = self.regions.levels(), self.hubs(level).level
        if chosen not in levels:
            available = ", ".join(map(str, levels)) or "none"
            msg = f"steps are not counted on level {chosen}: counted levels are {available}"
            raise NotFoundError(msg)
        return chosen


_MIN_TRIALS = 8.0  # fewest trials of an action in a region


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
