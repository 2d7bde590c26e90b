"""CrabPath: retrieval over a graph of your documents that learns from outcomes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crabpath_retrievers.errors import (
    ConfigurationError,
    ConflictError,
    CrabPathError,
    DuplicateIdError,
    EmbeddingMismatchError,
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
    from crabpath_retrievers.learning.queue import LearningTally
    from crabpath_retrievers.maintenance import MaintenanceReport
    from crabpath_retrievers.maintenance.autotune import TuneReport
    from crabpath_retrievers.maintenance.health.report import HealthReport
    from crabpath_retrievers.memory.graph import MemoryGraph
    from crabpath_retrievers.memory.learning import MemoryLearning, ReplayReport
    from crabpath_retrievers.memory.maintenance import MemoryMaintenance
    from crabpath_retrievers.memory.namespaces import MemoryNamespaces
    from crabpath_retrievers.memory.regions import MemoryRegions, RegionMDP
    from crabpath_retrievers.memory.transfer import MemoryTransfer
    from crabpath_retrievers.retrieval.explain import Explanation
    from crabpath_retrievers.retrieval.pipeline import Answer, RetrievedDocument
    from crabpath_retrievers.retriever import CrabPathRetriever
    from crabpath_retrievers.routing.chat_model.router import ChatModelRouter
    from crabpath_retrievers.routing.chat_model.settings import RouterSettings
    from crabpath_retrievers.storage.read.history import FeedbackRecord, Snapshot
    from crabpath_retrievers.stores.migrate import migrate
    from crabpath_retrievers.transfer.export import ExportResult
    from crabpath_retrievers.typed_search.follow import Neighbour, ReachedNode
    from crabpath_retrievers.typed_search.granger import Influence
    from crabpath_retrievers.typed_search.search import BayesianHit, CausalHit, GraphHit
    from crabpath_retrievers.vectors.opening import MemoryInfo

__version__ = "0.1.0"

__all__ = [
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
    "DuplicateIdError",
    "EmbeddingMismatchError",
    "Explanation",
    "ExportResult",
    "Feedback",
    "FeedbackRecord",
    "GraphHit",
    "HealthReport",
    "ImportResult",
    "Influence",
    "IngestReport",
    "InvalidInputError",
    "Knobs",
    "LearningTally",
    "MaintenanceReport",
    "MemoryGraph",
    "MemoryInfo",
    "MemoryLearning",
    "MemoryMaintenance",
    "MemoryNamespaces",
    "MemoryRegions",
    "MemoryTransfer",
    "MissingExtraError",
    "Neighbour",
    "NotFoundError",
    "OutcomePolicy",
    "ReachedNode",
    "Receipt",
    "RegionMDP",
    "ReplayReport",
    "RetrievedDocument",
    "RouterSettings",
    "Rule",
    "SchemaVersionError",
    "ServiceError",
    "Settings",
    "Snapshot",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "SyncPlan",
    "TuneReport",
    "Turn",
    "migrate",
]

# Imported at first use: ``import crabpath_retrievers`` must stay fast.
_LAZY = {
    "Answer": "crabpath_retrievers.retrieval.pipeline",
    "AsyncCrabPath": "crabpath_retrievers.crabpath",
    "BayesianHit": "crabpath_retrievers.typed_search.search",
    "GraphHit": "crabpath_retrievers.typed_search.search",
    "CausalHit": "crabpath_retrievers.typed_search.search",
    "ChatModelRouter": "crabpath_retrievers.routing.chat_model.router",
    "CrabPath": "crabpath_retrievers.crabpath",
    "CrabPathRetriever": "crabpath_retrievers.retriever",
    "Explanation": "crabpath_retrievers.retrieval.explain",
    "ExportResult": "crabpath_retrievers.transfer.export",
    "Feedback": "crabpath_retrievers.core.feedback",
    "FeedbackRecord": "crabpath_retrievers.storage.read.history",
    "HealthReport": "crabpath_retrievers.maintenance.health.report",
    "ImportResult": "crabpath_retrievers.core.changes.archive",
    "Influence": "crabpath_retrievers.typed_search.granger",
    "IngestReport": "crabpath_retrievers.ingest.pipeline",
    "Knobs": "crabpath_retrievers.config.autotune",
    "MaintenanceReport": "crabpath_retrievers.maintenance",
    "MemoryGraph": "crabpath_retrievers.memory.graph",
    "MemoryInfo": "crabpath_retrievers.vectors.opening",
    "MemoryLearning": "crabpath_retrievers.memory.learning",
    "MemoryMaintenance": "crabpath_retrievers.memory.maintenance",
    "MemoryNamespaces": "crabpath_retrievers.memory.namespaces",
    "MemoryRegions": "crabpath_retrievers.memory.regions",
    "MemoryTransfer": "crabpath_retrievers.memory.transfer",
    "Neighbour": "crabpath_retrievers.typed_search.follow",
    "OutcomePolicy": "crabpath_retrievers.config.outcome_policy",
    "ReachedNode": "crabpath_retrievers.typed_search.follow",
    "Receipt": "crabpath_retrievers.core.feedback",
    "RegionMDP": "crabpath_retrievers.memory.regions",
    "ReplayReport": "crabpath_retrievers.memory.learning",
    "RetrievedDocument": "crabpath_retrievers.retrieval.pipeline",
    "RouterSettings": "crabpath_retrievers.routing.chat_model.settings",
    "Rule": "crabpath_retrievers.config.outcome_policy",
    "Snapshot": "crabpath_retrievers.storage.read.history",
    "SyncPlan": "crabpath_retrievers.ingest.sync",
    "LearningTally": "crabpath_retrievers.learning.queue",
    "TuneReport": "crabpath_retrievers.maintenance.autotune",
    "Turn": "crabpath_retrievers.core.turn",
    "Settings": "crabpath_retrievers.config",
    "migrate": "crabpath_retrievers.stores.migrate",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
