"""CrabPath: retrieval over a graph of your documents that learns from outcomes."""

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
    from crabpath_lab.shadow import ShadowRetriever as ShadowRetriever
    from crabpath_retrievers.config import Settings
    from crabpath_retrievers.config.operation import Knobs
    from crabpath_retrievers.config.outcome_policy import OutcomePolicy, Rule
    from crabpath_retrievers.core.feedback import Feedback, Receipt
    from crabpath_retrievers.core.records import (
        ConsideredEdge,
        Edge,
        EdgeKind,
        ModelUsage,
        Node,
        PathEdge,
        ReturnedDocument,
        SeedRecord,
        Turn,
        WalkStep,
    )
    from crabpath_retrievers.crabpath import AsyncCrabPath, CrabPath
    from crabpath_retrievers.ingest.pipeline import IngestReport
    from crabpath_retrievers.learning.recorder import LearningTally
    from crabpath_retrievers.memory.documents import Forgotten
    from crabpath_retrievers.memory.learning import MemoryLearning, MemoryNamespaces
    from crabpath_retrievers.memory.services import Readiness
    from crabpath_retrievers.parts.chat_router.chat_model import ChatModelRouter
    from crabpath_retrievers.parts.chat_router.model_client import RouterSettings
    from crabpath_retrievers.parts.explain import Explanation
    from crabpath_retrievers.parts.listing import FeedbackRecord, NoteRecord, TurnRecord
    from crabpath_retrievers.parts.operation.lift import Lift, ShadowLift
    from crabpath_retrievers.parts.operation.maintenance.autotune import TuneReport
    from crabpath_retrievers.parts.operation.maintenance.doctor import (
        Diagnosis,
        Finding,
        examine,
    )
    from crabpath_retrievers.parts.operation.maintenance.health import HealthReport
    from crabpath_retrievers.parts.operation.maintenance.runner import MaintenanceReport
    from crabpath_retrievers.parts.operation.memory_maintenance import MemoryMaintenance
    from crabpath_retrievers.parts.operation.memory_transfer import MemoryTransfer
    from crabpath_retrievers.parts.operation.migrate import migrate
    from crabpath_retrievers.parts.operation.replay import ReplayCheck, ReplayReport
    from crabpath_retrievers.parts.operation.snapshots import Snapshot
    from crabpath_retrievers.parts.operation.transfer.export import ExportResult
    from crabpath_retrievers.parts.operation.transfer.fill import ImportResult
    from crabpath_retrievers.parts.operation.uses import DocumentUse
    from crabpath_retrievers.parts.region_mdp.memory_regions import MemoryRegions, RegionMDP
    from crabpath_retrievers.parts.region_mdp.overview import PlacedRegion, RegionMap
    from crabpath_retrievers.parts.sync import SyncPlan
    from crabpath_retrievers.parts.typed_graph.follow import (
        EdgePage,
        Neighbour,
        ReachedNode,
        WeighedEdge,
    )
    from crabpath_retrievers.parts.typed_graph.granger import Influence
    from crabpath_retrievers.parts.typed_graph.memory_graph import MemoryGraph
    from crabpath_retrievers.parts.typed_graph.queries import WeightMove
    from crabpath_retrievers.parts.typed_graph.search import BayesianHit, CausalHit, GraphHit
    from crabpath_retrievers.retrieval.pipeline import Answer, RetrievedDocument
    from crabpath_retrievers.retriever import CrabPathRetriever
    from crabpath_retrievers.routing import (
        ActionStatistics,
        Decision,
        RouterChoice,
        RoutingRequest,
        RoutingResult,
        SoftmaxRouter,
    )
    from crabpath_retrievers.storage.read.learned import NamespaceRecord
    from crabpath_retrievers.vectors.base import VectorIndex
    from crabpath_retrievers.vectors.opening import MemoryInfo

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "ActionStatistics",
    "Answer",
    "AsyncCrabPath",
    "BayesianHit",
    "CausalHit",
    "ChatModelRouter",
    "ConfigurationError",
    "ConflictError",
    "ConsideredEdge",
    "CrabPath",
    "CrabPathError",
    "CrabPathRetriever",
    "Decision",
    "Diagnosis",
    "DocumentUse",
    "DuplicateIdError",
    "Edge",
    "EdgeKind",
    "EdgePage",
    "EmbeddingMismatchError",
    "Explanation",
    "ExportResult",
    "Feedback",
    "FeedbackRecord",
    "Finding",
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
    "ModelUsage",
    "NamespaceRecord",
    "Neighbour",
    "Node",
    "NotFoundError",
    "NoteRecord",
    "OutcomePolicy",
    "PathEdge",
    "PlacedRegion",
    "ReachedNode",
    "Readiness",
    "Receipt",
    "RegionMDP",
    "RegionMap",
    "ReplayCheck",
    "ReplayReport",
    "RetrievedDocument",
    "ReturnedDocument",
    "RouterChoice",
    "RouterSettings",
    "RoutingRequest",
    "RoutingResult",
    "Rule",
    "SchemaVersionError",
    "SeedRecord",
    "ServiceError",
    "Settings",
    "ShadowLift",
    "Snapshot",
    "SoftmaxRouter",
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
    "VectorIndex",
    "WalkStep",
    "WeighedEdge",
    "WeightMove",
    "examine",
    "migrate",
]

# Imported at first use: ``import crabpath_retrievers`` must stay fast.
_MODULES = {
    "config": "Settings",
    "config.operation": "Knobs",
    "config.outcome_policy": "OutcomePolicy Rule",
    "core.feedback": "Feedback Receipt",
    "core.records": (
        "ConsideredEdge Edge EdgeKind ModelUsage Node PathEdge ReturnedDocument SeedRecord Turn "
        "WalkStep"
    ),
    "crabpath": "AsyncCrabPath CrabPath",
    "ingest.pipeline": "IngestReport",
    "learning.recorder": "LearningTally",
    "memory.documents": "Forgotten",
    "memory.learning": "MemoryLearning MemoryNamespaces",
    "memory.services": "Readiness",
    "parts.listing": "FeedbackRecord NoteRecord TurnRecord",
    "parts.operation.lift": "Lift ShadowLift",
    "parts.operation.maintenance.runner": "MaintenanceReport",
    "parts.operation.maintenance.autotune": "TuneReport",
    "parts.operation.maintenance.doctor": "Diagnosis Finding examine",
    "parts.operation.maintenance.health": "HealthReport",
    "parts.operation.memory_maintenance": "MemoryMaintenance",
    "parts.operation.memory_transfer": "MemoryTransfer",
    "parts.operation.migrate": "migrate",
    "parts.operation.replay": "ReplayCheck ReplayReport",
    "parts.operation.snapshots": "Snapshot",
    "parts.operation.transfer.export": "ExportResult",
    "parts.operation.uses": "DocumentUse",
    "parts.operation.transfer.fill": "ImportResult",
    "parts.region_mdp.memory_regions": "MemoryRegions RegionMDP",
    "parts.region_mdp.overview": "PlacedRegion RegionMap",
    "parts.sync": "SyncPlan",
    "parts.typed_graph.follow": "EdgePage Neighbour ReachedNode WeighedEdge",
    "parts.typed_graph.granger": "Influence",
    "parts.typed_graph.memory_graph": "MemoryGraph",
    "parts.typed_graph.queries": "WeightMove",
    "parts.typed_graph.search": "BayesianHit CausalHit GraphHit",
    "parts.explain": "Explanation",
    "retrieval.pipeline": "Answer RetrievedDocument",
    "retriever": "CrabPathRetriever",
    "parts.chat_router.model_client": "RouterSettings",
    "parts.chat_router.chat_model": "ChatModelRouter",
    "routing": (
        "ActionStatistics Decision RouterChoice RoutingRequest RoutingResult SoftmaxRouter"
    ),
    "storage.read.learned": "NamespaceRecord",
    "vectors.base": "VectorIndex",
    "vectors.opening": "MemoryInfo",
}
_LAZY = {
    name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names.split()
}
# Not in __all__: a star import works without the laboratory.
_LAZY["ShadowRetriever"] = "crabpath_lab.shadow"


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from crabpath_retrievers.core.extras import load_part

        return getattr(load_part(_LAZY[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
