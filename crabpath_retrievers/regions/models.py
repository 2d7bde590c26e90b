"""Regions as a graph store alone tells them: without vector index, embedder or a memory."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.changes.regions import Step
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.regions.hubs import Hubs, Regions
from crabpath_retrievers.regions.mdp import RegionModel
from crabpath_retrievers.storage import GraphStore

Sources = tuple[
    Callable[[], Hubs], Callable[[], Hashable], Callable[[], Sequence[Step]], RegionSettings
]
"""Hubs of a level, version of the counts, the counts, settings."""


@dataclass(frozen=True, slots=True)
class Models:
    """Reads regions and what is known of the steps taken in them."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings

    def level(self, level: int | None) -> int:
        """A level as given; for None the finest in which steps are counted, else the first."""
        return next(iter(self.regions.levels()), 1) if level is None else level

    def assignments(self, level: int | None) -> dict[str, str]:
        """The region of every document chunk: id of its hub by id; the corpus is read in blocks.

        Raises:
            NotFoundError: The level has no hub.
        """
        hubs = self.hubs(level)
        hub_by_node: dict[str, str] = {}
        for block in self.store.regions.placed():
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
        """What a namespace has learned of steps in regions; raises as :meth:`sources`."""
        return RegionModel(*self.sources(namespace, level))

    def sources(self, namespace: str, level: int | None) -> Sources:
        """What a model of these steps is read from.

        Raises:
            NotFoundError: The level has no hub, or steps are not counted on it.
            InvalidInputError: The level is none.
        """
        levels = self.regions.levels()
        chosen = self.hubs(level).level
        if chosen not in levels:
            available = ", ".join(map(str, levels)) or "none"
            msg = f"steps are not counted on level {chosen}: counted levels are {available}"
            raise NotFoundError(msg)

        def version() -> tuple[int, ...]:
            clock = self.store.walk.clock(namespace)  # a forgotten one learns under a new key
            return clock.key, clock.learned, clock.hubs

        return (
            lambda: self.regions.hubs(chosen),
            version,
            lambda: self.store.regions.all_steps(namespace, chosen),
            self.settings,
        )
