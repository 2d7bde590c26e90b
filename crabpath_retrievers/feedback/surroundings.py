"""What is read about one turn before learning from it: regions, records, learned edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crabpath_retrievers.changes.regions import RegionKey
from crabpath_retrievers.config import RegionSettings
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.learning.fair import DocumentRecord
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.regions.chances import ANY_TASK, SuccessModel
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.trajectory import Turn

TASK_TYPES_FIELD = "task_type"
"""Metadata field with the types of task a document is meant for: a text or a list of texts."""


@dataclass(frozen=True, slots=True)
class TurnRegions:
    """Regions of a turn.

    Attributes:
        places: Regions of its query, from the whole corpus to the finest; empty if the corpus has
            no regions.
        documents: Regions of the returned documents, by id and level.
        chances: Success estimates in these regions before this turn.
        query_hub: Id of the hub of the finest region of the query; None if it lies in none.
        document_hubs: The same for the documents, by id.
    """

    places: Sequence[RegionKey]
    documents: Mapping[str, Mapping[int, int]]
    chances: SuccessModel
    query_hub: str | None = None
    document_hubs: Mapping[str, str] = field(default_factory=dict)

    def quality(self, task: str | None) -> float:
        """P(success) in the region of the query, in (0, 1)."""
        return self.chances.quality(task or ANY_TASK)

    def baseline(self, usual: float) -> float:
        """Mean credit in the region of the query, in [-1, 1]; starts at ``usual``."""
        return self.chances.credit(usual)


@dataclass(frozen=True, slots=True)
class TurnRegionReader:
    """Reads regions and document records for a namespace at ``clock``."""

    store: GraphStore
    regions: Regions
    settings: RegionSettings
    clock: Clock

    def locate(self, turn: Turn, vector: Vector | None) -> TurnRegions:
        """Find the regions of a turn with this unit query vector, shape ``[d]``."""
        clock = self.clock
        if vector is None or not clock.hubs:
            return TurnRegions((), {}, SuccessModel((), (), self.settings.prior_trials))
        places = self.regions.places(np.asarray(vector, dtype=np.float32), clock.hubs)
        steps = self.store.regions.get_transitions(clock.key, places) if clock.key else []
        chances = SuccessModel(places, steps, self.settings.prior_trials)
        levels = [level for level, _ in places if level]
        documents = self._locate_documents(turn, levels, clock)
        finest_level, region = places[-1]
        if not finest_level:
            return TurnRegions(places, documents, chances)
        names_by_key = self.regions.hubs(finest_level, clock.hubs).names
        homes = {
            node: names_by_key[regions[finest_level]]
            for node, regions in documents.items()
            if regions.get(finest_level) in names_by_key
        }
        return TurnRegions(places, documents, chances, names_by_key.get(region), homes)

    def _locate_documents(
        self, turn: Turn, levels: Sequence[int], clock: Clock
    ) -> dict[str, dict[int, int]]:
        nodes = [item.node for item in turn.returned]
        heads = self.store.walk.get_nodes(nodes, namespace=clock.key)
        keys, vectors = [head.key for head in heads], [head.vector for head in heads]
        regions_by_level = {
            lev: self.regions.of_nodes(keys, vectors, lev, clock.hubs) for lev in levels
        }
        return {
            head.id: {
                level: regions[head.key]
                for level, regions in regions_by_level.items()
                if head.key in regions
            }
            for head in heads
        }

    def read_records(self, turn: Turn, credit: Credit) -> dict[str, DocumentRecord]:
        """Read the usage and task types of the documents that a failed turn blames."""
        blamed_ids = [node for node, value in credit.documents.items() if value < 0]
        if not blamed_ids or credit.outcome >= 0:
            return {}
        clock = self.clock
        keys = self.store.learned.keys(blamed_ids)
        usage = self.store.learned.usage(clock.key, list(keys.values()))
        tasks = self._read_task_types(blamed_ids, clock.key) if turn.task_type else {}
        return {
            node: DocumentRecord(
                usage[keys[node]].wins if keys.get(node) in usage else 0.0,
                tasks.get(node, frozenset()),
            )
            for node in blamed_ids
        }

    def _read_task_types(self, nodes: Sequence[str], namespace: int) -> dict[str, frozenset[str]]:
        documents = self.store.catalog.documents(nodes, namespace=namespace)
        return {
            node: _to_texts(document.metadata.get(TASK_TYPES_FIELD))
            for node, document in documents.items()
        }


def _to_texts(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value})
    return frozenset(map(str, value)) if isinstance(value, (list, tuple)) else frozenset()
