"""CrabPath in LangGraph: nodes, agent middleware and a retrieval tool."""

from langgraph_crabpath.extra import require_langgraph_extra

require_langgraph_extra()

from langgraph_crabpath.context import format_documents  # noqa: E402  the extra comes first
from langgraph_crabpath.feedback_node import FeedbackNode, crabpath_feedback  # noqa: E402
from langgraph_crabpath.middleware import CrabPathMiddleware  # noqa: E402
from langgraph_crabpath.retrieve_node import RetrieveNode, crabpath_retrieve  # noqa: E402
from langgraph_crabpath.tool import create_crabpath_tool  # noqa: E402

__all__ = [
    "CrabPathMiddleware",
    "FeedbackNode",
    "RetrieveNode",
    "crabpath_feedback",
    "crabpath_retrieve",
    "create_crabpath_tool",
    "format_documents",
]
