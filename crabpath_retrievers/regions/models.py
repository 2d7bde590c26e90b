"""Region models read from a graph store alone, without vector index, embedder or memory."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.regions.hubs import Hubs, Regions
from crabpath_retrievers.regions.mdp import RegionModel
from crabpath_retrievers.storage import GraphStore

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
