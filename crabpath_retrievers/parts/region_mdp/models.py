"""Region models read from a graph store alone, without vector index, embedder or memory."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes import STATES
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.parts.region_mdp.mdp import RegionModel
from crabpath_retrievers.regions import Hubs, RegionIndex
from crabpath_retrievers.storage import GraphStore

_MAX_STATES = 10_000  # states that are compared: 30 MiB with 384 dimensions
RegionLevel = int | Literal["states"] | None
"""A level of regions of documents; ``"states"``: what agents saw in their episodes."""


@dataclass(frozen=True, slots=True)
class RegionModels:
    """Reads regions and the transition counts of a namespace."""

    store: GraphStore
    regions: RegionIndex
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
        """Return the region model of a namespace; errors as :meth:`counted_level`.

        ``level`` None is the finest; ``"states"`` are the states of agents.
        """
        counted = self.counted_level(level)
        hubs = self.reader(namespace, counted)
        return RegionModel(self.store, hubs, self.settings, namespace, counted)

    def reader(self, namespace: str, level: int) -> Callable[[], Hubs]:
        """Return a function that reads the hubs of a level, or the states of agents."""
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


class StateHubs:
    """Reads the states of the episodes of agents in a namespace, as hubs."""

    def __init__(self, store: GraphStore, namespace: str) -> None:
        """Keep the store and the namespace whose states of agents are the hubs."""
        self._store, self._namespace = store, namespace
        self._known: tuple[tuple[int, int], Hubs] | None = None

    def __call__(self) -> Hubs:
        """Read the newest 10,000 states; none before an episode in words."""
        clock = self._store.walk.get_clock(self._namespace)
        version = (clock.key, clock.learned)
        if self._known is None or self._known[0] != version:
            self._known = (version, self._read_states(clock.key))
        return self._known[1]

    def _read_states(self, namespace: int) -> Hubs:
        rows = self._store.regions.get_states(namespace, _MAX_STATES)
        if not rows:
            return Hubs(STATES, (), (), (), np.zeros((0, 0)))
        keys, ids, titles, vectors = zip(*rows, strict=True)
        return Hubs(STATES, keys, ids, titles, np.stack(vectors).astype(np.float64))
