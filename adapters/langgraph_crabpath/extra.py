"""Checks that LangGraph and LangChain's agents are installed."""

from importlib import import_module

from crabpath_retrievers import MissingExtraError

_NEEDED = ("langgraph.graph", "langchain.agents.middleware")


def require_langgraph_extra() -> None:
    """Refuse to import without the extra, with a message that names the package to install.

    Raises:
        MissingExtraError: LangGraph or LangChain's agents are missing.
    """
    try:
        for name in _NEEDED:
            import_module(name)
    except ImportError as error:
        msg = f"langgraph_crabpath needs {error.name}: pip install 'crabpath-retrievers[langgraph]'"
        raise MissingExtraError(msg) from error
