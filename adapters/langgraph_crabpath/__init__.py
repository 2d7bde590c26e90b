"""CrabPath in LangGraph: nodes, agent middleware, a retrieval tool and a store."""

from crabpath_retrievers import MissingExtraError

try:
    import langchain.agents.middleware  # noqa: F401  only to say which extra is missing
    import langgraph.graph  # noqa: F401
except ImportError as error:
    msg = f"langgraph_crabpath needs {error.name}: pip install 'crabpath-retrievers[langgraph]'"
    raise MissingExtraError(msg) from error

from langgraph_crabpath.middleware import CrabPathMiddleware
from langgraph_crabpath.nodes import (
    FeedbackNode,
    RetrieveNode,
    crabpath_feedback,
    crabpath_retrieve,
)
from langgraph_crabpath.store import CrabPathSearchItem, CrabPathStore
from langgraph_crabpath.tool import create_crabpath_tool, format_documents

__all__ = [
    "CrabPathMiddleware",
    "CrabPathSearchItem",
    "CrabPathStore",
    "FeedbackNode",
    "RetrieveNode",
    "crabpath_feedback",
    "crabpath_retrieve",
    "create_crabpath_tool",
    "format_documents",
]
