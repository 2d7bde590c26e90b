"""Where a judged turn took place: regions of its query and documents, and what is known there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crabpath_retrievers.changes.regions import Place
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.learning.fair import Standing
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.regions.chances import ANY_TASK, Chances
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.trajectory import Turn

TASKS = "task_type"
"""Metadata of a document that says for which types of tasks it is: a text, or a list of them."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a turn took place.

    Attributes:
        places: Regions of the query, everything first; none where the corpus has no regions.
        documents: Regions of the returned documents, by id and level.
        chances: How likely steps succeeded there before this turn.
        home: Id of the hub of the finest region of the query, if it lies in one.
        homes: The same of the documents, by id.
    """

    places: Sequence[Place]
    documents: Mapping[str, Mapping[int, int]]
    chances: Chances
    home: str | None = None
    homes: Mapping[str, str] = field(default_factory=dict)

    def quality(self, task: str | None) -> float:
        """P(success) in the region of the query, in (0, 1)."""
        return self.chances.quality(task or ANY_TASK)

    def baseline(self, usual: float) -> float:
        """Mean credit in the region of the query, in [-1, 1]; ``usual`` before any turn there."""
        return self.chances.credit(usual)


@dataclass(frozen=True, slots=True)
class Surveyor:
    """Looks it up, for a namespace that stands at ``clock``."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings
    clock: Clock

    def around(self, turn: Turn, vector: Vector | None) -> Surroundings:
        """Where a turn with this unit query vector, of shape ``[d]``, took place."""
        clock = self.clock
        if vector is None or not clock.hubs:
            return Surroundings((), {}, Chances((), (), self.settings.prior_trials))
        places = self.regions.places(np.asarray(vector, dtype=np.float32), clock.hubs)
        steps = self.store.regions.steps(clock.key, places) if clock.key else []
        chances = Chances(places, steps, self.settings.prior_trials)
        levels = [level for level, _ in places if level]
        documents = self._documents(turn, levels, clock)
        finest, region = places[-1]
        if not finest:
            return Surroundings(places, documents, chances)
        named = self.regions.hubs(finest, clock.hubs).names
        homes = {
            node: named[of[finest]] for node, of in documents.items() if of.get(finest) in named
        }
        return Surroundings(places, documents, chances, named.get(region), homes)

    def _documents(
        self, turn: Turn, levels: Sequence[int], clock: Clock
    ) -> dict[str, dict[int, int]]:
        nodes = [item.node for item in turn.returned]
        heads = self.store.walk.heads(nodes, namespace=clock.key)
        keys, vectors = [head.key for head in heads], [head.vector for head in heads]
        found = {lev: self.regions.of_nodes(keys, vectors, lev, clock.hubs) for lev in levels}
        return {
            head.id: {level: at[head.key] for level, at in found.items() if head.key in at}
            for head in heads
        }

    def standings(self, turn: Turn, credit: Credit) -> dict[str, Standing]:
        """What is known of the documents that a failed turn blames."""
        blamed = [node for node, value in credit.documents.items() if value < 0]
        if not blamed or credit.outcome >= 0:
            return {}
        clock = self.clock
        keys = self.store.learned.keys(blamed)
        usage = self.store.learned.usage(clock.key, list(keys.values()))
        tasks = self._tasks(blamed, clock.key) if turn.task_type else {}
        return {
            node: Standing(
                usage[keys[node]].wins if keys.get(node) in usage else 0.0,
                tasks.get(node, frozenset()),
            )
            for node in blamed
        }

    def _tasks(self, nodes: Sequence[str], namespace: int) -> dict[str, frozenset[str]]:
        documents = self.store.catalog.documents(nodes, namespace=namespace)
        return {node: _texts(one.metadata.get(TASKS)) for node, one in documents.items()}


def _texts(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(map(str, value)) if isinstance(value, (list, tuple)) else frozenset()
