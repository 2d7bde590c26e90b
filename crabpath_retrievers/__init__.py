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
    from crabpath_retrievers.memory import CrabPath
    from crabpath_retrievers.memory.region_mdp import RegionMDP
    from crabpath_retrievers.migration import migrate
    from crabpath_retrievers.outcome import Feedback
    from crabpath_retrievers.outcome_policy import OutcomePolicy, Rule
    from crabpath_retrievers.retriever import CrabPathRetriever
    from crabpath_retrievers.routing.chat_model import ChatModelRouter
    from crabpath_retrievers.routing.settings import RouterSettings

__version__ = "0.1.0"

__all__ = [
    "ChatModelRouter",
    "ConfigurationError",
    "ConflictError",
    "CrabPath",
    "CrabPathError",
    "CrabPathRetriever",
    "DuplicateIdError",
    "EmbeddingMismatchError",
    "Feedback",
    "InvalidInputError",
    "MissingExtraError",
    "NotFoundError",
    "OutcomePolicy",
    "RegionMDP",
    "RouterSettings",
    "Rule",
    "SchemaVersionError",
    "ServiceError",
    "Settings",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreUnavailableError",
    "migrate",
]

# Imported at first use: ``import crabpath_retrievers`` must stay fast.
_LAZY = {
    "ChatModelRouter": "crabpath_retrievers.routing.chat_model",
    "CrabPath": "crabpath_retrievers.memory",
    "CrabPathRetriever": "crabpath_retrievers.retriever",
    "Feedback": "crabpath_retrievers.outcome",
    "OutcomePolicy": "crabpath_retrievers.outcome_policy",
    "RegionMDP": "crabpath_retrievers.memory.region_mdp",
    "RouterSettings": "crabpath_retrievers.routing.settings",
    "Rule": "crabpath_retrievers.outcome_policy",
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
