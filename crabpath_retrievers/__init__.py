"""CrabPath: retrieval over a graph of your documents that learns from outcomes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crabpath_retrievers.errors import (
    AccessError,
    ConfigurationError,
    ConflictError,
    CrabPathError,
    DuplicateIdError,
    EmbeddingMismatchError,
    ForbiddenError,
    ForkedError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    SchemaVersionError,
    ServiceError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TokenError,
)

if TYPE_CHECKING:
    from crabpath_retrievers.config import Settings
    from crabpath_retrievers.config.autotune import Knobs
    from crabpath_retrievers.config.outcome_policy import OutcomePolicy, Rule
    from crabpath_retrievers.core.changes.archive import ImportResult
    from crabpath_retrievers.core.feedback import Feedback, Receipt
    from crabpath_retrievers.core.turn import Turn
    from crabpath_retrievers.crabpath import AsyncCrabPath, CrabPath
    from crabpath_retrievers.ingest.pipeline import IngestReport
    from crabpath_retrievers.ingest.sync import SyncPlan
    from crabpath_retrievers.learning.lift import Lift, ShadowLift
    from crabpath_retrievers.learning.recorder import LearningTally
    from crabpath_retrievers.maintenance import MaintenanceReport
    from crabpath_retrievers.maintenance.autotune import TuneReport
    from crabpath_retrievers.maintenance.health.report import HealthReport
    from crabpath_retrievers.maintenance.readiness import Readiness
    from crabpath_retrievers.memory.documents import Forgotten
    from crabpath_retrievers.memory.graph import MemoryGraph
    from crabpath_retrievers.memory.learning import MemoryLearning
    from crabpath_retrievers.memory.maintenance import MemoryMaintenance
    from crabpath_retrievers.memory.namespaces import MemoryNamespaces
    from crabpath_retrievers.memory.regions import MemoryRegions, RegionMDP
    from crabpath_retrievers.memory.replay import ReplayCheck, ReplayReport
    from crabpath_retrievers.memory.transfer import MemoryTransfer
    from crabpath_retrievers.regions.overview import PlacedRegion, RegionMap
    from crabpath_retrievers.retrieval.explain import Explanation
    from crabpath_retrievers.retrieval.pipeline import Answer, RetrievedDocument
    from crabpath_retrievers.retriever import CrabPathRetriever
    from crabpath_retrievers.routing.chat_model.client import RouterSettings
    from crabpath_retrievers.routing.chat_model.router import ChatModelRouter
    from crabpath_retrievers.shadow import ShadowRetriever
    from crabpath_retrievers.storage.read.history import FeedbackRecord, Snapshot, WeightMove
    from crabpath_retrievers.storage.read.learned import DocumentUse, NamespaceRecord
    from crabpath_retrievers.storage.read.notes import NoteRecord
    from crabpath_retrievers.storage.read.turns import TurnRecord
    from crabpath_retrievers.stores.migrate import migrate
    from crabpath_retrievers.transfer.export import ExportResult
    from crabpath_retrievers.typed_search.follow import (
        EdgePage,
        Neighbour,
        ReachedNode,
        WeighedEdge,
    )
    from crabpath_retrievers.typed_search.granger import Influence
    from crabpath_retrievers.typed_search.search import BayesianHit, CausalHit, GraphHit
    from crabpath_retrievers.vectors.opening import MemoryInfo

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "Answer",
    "AsyncCrabPath",
    "BayesianHit",
    "CausalHit",
    "ChatModelRouter",
    "ConfigurationError",
    "ConflictError",
    "CrabPath",
    "CrabPathError",
    "CrabPathRetriever",
    "DocumentUse",
    "DuplicateIdError",
    "EdgePage",
    "EmbeddingMismatchError",
    "Explanation",
    "ExportResult",
    "Feedback",
    "FeedbackRecord",
    "ForbiddenError",
    "Forgotten",
    "ForkedError",
    "GraphHit",
    "HealthReport",
    "ImportResult",
    "Influence",
    "IngestReport",
    "InvalidInputError",
    "Knobs",
    "LearningTally",
    "Lift",
    "MaintenanceReport",
    "MemoryGraph",
    "MemoryInfo",
    "MemoryLearning",
    "MemoryMaintenance",
    "MemoryNamespaces",
    "MemoryRegions",
    "MemoryTransfer",
    "MissingExtraError",
    "NamespaceRecord",
    "Neighbour",
    "NotFoundError",
    "NoteRecord",
    "OutcomePolicy",
    "PlacedRegion",
    "ReachedNode",
    "Readiness",
    "Receipt",
    "RegionMDP",
    "RegionMap",
    "ReplayCheck",
    "ReplayReport",
    "RetrievedDocument",
    "RouterSettings",
    "Rule",
    "SchemaVersionError",
    "ServiceError",
    "Settings",
    "ShadowLift",
    "ShadowRetriever",
    "Snapshot",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "SyncPlan",
    "TokenError",
    "TuneReport",
    "Turn",
    "TurnRecord",
    "WeighedEdge",
    "WeightMove",
    "migrate",
]

# Imported at first use: ``import crabpath_retrievers`` must stay fast.
_MODULES = {
    "config": "Settings",
    "config.autotune": "Knobs",
    "config.outcome_policy": "OutcomePolicy Rule",
    "core.changes.archive": "ImportResult",
    "core.feedback": "Feedback Receipt",
    "core.turn": "Turn",
    "crabpath": "AsyncCrabPath CrabPath",
    "ingest.pipeline": "IngestReport",
    "ingest.sync": "SyncPlan",
    "learning.lift": "Lift ShadowLift",
    "learning.recorder": "LearningTally",
    "maintenance": "MaintenanceReport",
    "maintenance.autotune": "TuneReport",
    "maintenance.health.report": "HealthReport",
    "maintenance.readiness": "Readiness",
    "memory.documents": "Forgotten",
    "memory.graph": "MemoryGraph",
    "memory.learning": "MemoryLearning",
    "memory.replay": "ReplayCheck ReplayReport",
    "memory.maintenance": "MemoryMaintenance",
    "memory.namespaces": "MemoryNamespaces",
    "memory.regions": "MemoryRegions RegionMDP",
    "memory.transfer": "MemoryTransfer",
    "regions.overview": "PlacedRegion RegionMap",
    "retrieval.explain": "Explanation",
    "retrieval.pipeline": "Answer RetrievedDocument",
    "retriever": "CrabPathRetriever",
    "routing.chat_model.router": "ChatModelRouter",
    "routing.chat_model.client": "RouterSettings",
    "shadow": "ShadowRetriever",
    "storage.read.history": "FeedbackRecord Snapshot WeightMove",
    "storage.read.learned": "DocumentUse NamespaceRecord",
    "storage.read.notes": "NoteRecord",
    "storage.read.turns": "TurnRecord",
    "stores.migrate": "migrate",
    "transfer.export": "ExportResult",
    "typed_search.follow": "EdgePage Neighbour ReachedNode WeighedEdge",
    "typed_search.granger": "Influence",
    "typed_search.search": "BayesianHit CausalHit GraphHit",
    "vectors.opening": "MemoryInfo",
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names.split()}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
