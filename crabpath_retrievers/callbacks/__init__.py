"""Outcomes of LangChain and LangGraph chains as feedback; LangSmith both ways."""

from crabpath_retrievers.callbacks.handler import (
    AsyncCrabPathCallbackHandler,
    CrabPathCallbackHandler,
)
from crabpath_retrievers.config.outcome_policy import OutcomePolicy, Rule

__all__ = ["AsyncCrabPathCallbackHandler", "CrabPathCallbackHandler", "OutcomePolicy", "Rule"]
