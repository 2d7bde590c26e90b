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
    from crabpath_retrievers.archive.exporting import ExportResult
    from crabpath_retrievers.archive.importing import ImportResult
    from crabpath_retrievers.autotune import TuneReport
    from crabpath_retrievers.config import Settings
    from crabpath_retrievers.config.autotune import Knobs
    from crabpath_retrievers.crabpath import AsyncCrabPath, CrabPath
    from crabpath_retrievers.explanation import Explanation
    from crabpath_retrievers.feedback.inbox import LearningTally
    from crabpath_retrievers.feedback.receipt import Receipt
    from crabpath_retrievers.health.report import HealthReport
    from crabpath_retrievers.ingest.pipeline import IngestReport
    from crabpath_retrievers.ingest.sync_plan import SyncPlan
    from crabpath_retrievers.learning.influence import Influence
    from crabpath_retrievers.maintenance import MaintenanceReport
    from crabpath_retrievers.memory.graph import MemoryGraph
    from crabpath_retrievers.memory.learning import MemoryLearning, ReplayReport
    from crabpath_retrievers.memory.maintenance import MemoryMaintenance
    from crabpath_retrievers.memory.namespaces import MemoryNamespaces
    from crabpath_retrievers.memory.regions import MemoryRegions, RegionMDP
    from crabpath_retrievers.memory.transfer import MemoryTransfer
    from crabpath_retrievers.migration import migrate
    from crabpath_retrievers.opening import MemoryInfo
    from crabpath_retrievers.outcome import Feedback
    from crabpath_retrievers.outcome_policy import OutcomePolicy, Rule
    from crabpath_retrievers.retrieval import Answer, RetrievedDocument
    from crabpath_retrievers.retriever import CrabPathRetriever
    from crabpath_retrievers.routing.chat_model import ChatModelRouter
    from crabpath_retrievers.routing.settings import RouterSettings
    from crabpath_retrievers.searches.bayesian import BayesianHit
    from crabpath_retrievers.searches.boosted import GraphHit
    from crabpath_retrievers.searches.causal import CausalHit
    from crabpath_retrievers.searches.following import Neighbour, ReachedNode
    from crabpath_retrievers.storage.history_queries import FeedbackRecord, Snapshot
    from crabpath_retrievers.trajectory import Turn

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
    "Answer": "crabpath_retrievers.retrieval",
    "AsyncCrabPath": "crabpath_retrievers.crabpath",
    "BayesianHit": "crabpath_retrievers.searches.bayesian",
    "BoostedHit": "crabpath_retrievers.searches.boosted",
    "CausalHit": "crabpath_retrievers.searches.causal",
    "ChatModelRouter": "crabpath_retrievers.routing.chat_model",
    "CrabPath": "crabpath_retrievers.crabpath",
    "CrabPathRetriever": "crabpath_retrievers.retriever",
    "Explanation": "crabpath_retrievers.explanation",
    "Exported": "crabpath_retrievers.archive.exporting",
    "Feedback": "crabpath_retrievers.outcome",
    "FeedbackRecord": "crabpath_retrievers.storage.history_queries",
    "HealthReport": "crabpath_retrievers.health.report",
    "Imported": "crabpath_retrievers.archive.importing",
    "Influence": "crabpath_retrievers.learning.influence",
    "IngestReport": "crabpath_retrievers.ingest.pipeline",
    "Knobs": "crabpath_retrievers.config.autotune",
    "MaintenanceReport": "crabpath_retrievers.maintenance",
    "MemoryGraph": "crabpath_retrievers.memory.graph",
    "MemoryInfo": "crabpath_retrievers.opening",
    "MemoryLearning": "crabpath_retrievers.memory.learning",
    "MemoryMaintenance": "crabpath_retrievers.memory.maintenance",
    "MemoryNamespaces": "crabpath_retrievers.memory.namespaces",
    "MemoryRegions": "crabpath_retrievers.memory.regions",
    "MemoryTransfer": "crabpath_retrievers.memory.transfer",
    "Neighbour": "crabpath_retrievers.searches.following",
    "OutcomePolicy": "crabpath_retrievers.outcome_policy",
    "Reached": "crabpath_retrievers.searches.following",
    "Receipt": "crabpath_retrievers.feedback.receipt",
    "RegionMDP": "crabpath_retrievers.memory.regions",
    "ReplayReport": "crabpath_retrievers.memory.learning",
    "RetrievedDocument": "crabpath_retrievers.retrieval",
    "RouterSettings": "crabpath_retrievers.routing.settings",
    "Rule": "crabpath_retrievers.outcome_policy",
    "Snapshot": "crabpath_retrievers.storage.history_queries",
    "SyncPlan": "crabpath_retrievers.ingest.sync_plan",
    "Tally": "crabpath_retrievers.feedback.inbox",
    "TuneReport": "crabpath_retrievers.autotune",
    "Turn": "crabpath_retrievers.trajectory",
    "Settings": "crabpath_retrievers.config",
    "migrate": "crabpath_retrievers.migration",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
